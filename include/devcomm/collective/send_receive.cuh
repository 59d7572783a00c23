/// \file send_receive.cuh
/// What groups of sends and receives make easy: gather and scatter of vectors of any lengths, exchange with the
/// neighbors of a grid, and the ready kernel that moves a list.
#pragma once

#include <devcomm/assert.hpp>
#include <devcomm/channel/group_session.cuh>
#include <devcomm/channel/messages.hpp>
#include <devcomm/dependent_launch.cuh>
#include <devcomm/sym_ptr.hpp>

#if !defined(__CUDACC_RTC__)
#  include <devcomm/channel/message_table.hpp>
#  include <devcomm/launch.hpp>
#endif

namespace devcomm::detail {

/// Puts messages where a group of threads reads them; the first thread writes.
struct message_writer {
  channel::message* to;
  uint32_t most;
  bool writes;
  uint32_t count = 0;

  DEVCOMM_DEVICE void add(const channel::message& m) {
    DEVCOMM_ASSERT(count < most, "the room for a list is too small for its messages");
    if (writes) to[count] = m;
    ++count;
  }
};

}  // namespace devcomm::detail

namespace devcomm::collective {

/// Memory for a list, which all threads of the session's group see: shared memory will do. Each group of a rank has its
/// own. An array of messages converts to it.
struct message_room {
  channel::message* at;
  uint32_t count;

  DEVCOMM_DEVICE message_room(channel::message* messages, uint32_t most) : at(messages), count(most) {}
  template <uint32_t Count>
  DEVCOMM_DEVICE message_room(channel::message (&messages)[Count]) : at(messages), count(Count) {}
};

/// Member `root` gets the vectors of all members of the session's team, those of member 0 first; each has `count`
/// elements. All members name the same window in `output`, in which the root has room for all vectors; where in it is
/// for the root alone to say. *Requires* room for as many messages as there are members, and one more.
///
/// *Blocks*, *Collective* and *Failure* as for `channel::group_session::transfer`.
template <class T, class Group>
DEVCOMM_DEVICE void gather(channel::group_session<Group>& session, int root, const T* input, const sym_ptr<T>& output,
                           uint64_t count, message_room room) {
  const team& members = session.members();
  DEVCOMM_ASSERT(root >= 0 && root < members.size, "the root of a gather is outside the session's team");
  detail::message_writer list{room.at, room.count, session.group().thread_rank() == 0};
  session.group().sync();  // nobody reads what the room held
  list.add(channel::message::send(root, input, count * sizeof(T)));
  if (members.rank == root)
    for (int m = 0; m < members.size; ++m)
      list.add(channel::message::receive(m, output + static_cast<int64_t>(count) * m, count));
  session.transfer({room.at, list.count, 1, &output.memory});
}

/// Each member of the session's team gets its vector of `count` elements of those that member `root` has in `input`,
/// member 0's first. Only the root's `input` counts. All members name the same window in `output`. *Requires* room as
/// `gather`.
template <class T, class Group>
DEVCOMM_DEVICE void scatter(channel::group_session<Group>& session, int root, const T* input, const sym_ptr<T>& output,
                            uint64_t count, message_room room) {
  const team& members = session.members();
  DEVCOMM_ASSERT(root >= 0 && root < members.size, "the root of a scatter is outside the session's team");
  detail::message_writer list{room.at, room.count, session.group().thread_rank() == 0};
  session.group().sync();
  if (members.rank == root)
    for (int m = 0; m < members.size; ++m)
      list.add(channel::message::send(m, input + count * static_cast<uint64_t>(m), count * sizeof(T)));
  list.add(channel::message::receive(root, output, count));
  session.transfer({room.at, list.count, 1, &output.memory});
}

/// One side of a rank's part of a grid.
template <class T>
struct halo_side {
  int peer;         ///< the neighbor there; negative: none
  const T* inner;   ///< what the neighbor gets
  sym_ptr<T> halo;  ///< what comes from it
  uint64_t count;   ///< elements of each
};

/// Each rank sends the `inner` of each of its sides to the neighbor there, whose `halo` of the opposite side gets it.
/// Sides `2 d` and `2 d + 1` are opposite, in dimension `d`: with two ranks in a ring both neighbors are the same
/// rank, and with one, the rank itself. All halos, of all ranks, lie in one window; a side without a neighbor needs
/// none. *Requires* room for twice as many messages as there are sides.
///
/// *Blocks*, *Collective* and *Failure* as for `channel::group_session::transfer`.
template <int Sides, class T, class Group>
DEVCOMM_DEVICE void halo_exchange(channel::group_session<Group>& session, const halo_side<T> (&sides)[Sides],
                                  message_room room) {
  static_assert(Sides % 2 == 0, "sides come in opposite pairs; one without a neighbor has a negative peer");
  detail::message_writer list{room.at, room.count, session.group().thread_rank() == 0};
  session.group().sync();
  int first = 0;  // side with a neighbor
  while (first + 1 < Sides && sides[first].peer < 0) ++first;
  const window& halos = sides[first].halo.memory;
  for (const halo_side<T>& side : sides)
    if (side.peer >= 0) list.add(channel::message::send(side.peer, side.inner, side.count * sizeof(T)));
  for (int s = 0; s < Sides; ++s) {
    const halo_side<T>& side = sides[s ^ 1];  // in the order in which the neighbors sent
    if (side.peer < 0) continue;
    DEVCOMM_ASSERT(side.halo.memory.id == halos.id, "the halos of an exchange lie in one window");
    list.add(channel::message::receive(side.peer, side.halo, side.count));
  }
  session.transfer({room.at, list.count, 1, &halos});
}

/// The ready kernel: moves the messages of a list in memory of the device, with a stripe for each block. *Requires* as
/// many blocks on each rank, and connections with as many stripes.
template <unsigned MostThreads = 512>
__global__ void __launch_bounds__(MostThreads)
    move_messages(device_comm comm, channel::connection_handle connections, const channel::message_list* list) {
  wait_for_prior_launch();
  channel::group_session session{block{}, comm, connections, channel::stripe_of_block()};
  session.transfer(*list);
}

#if !defined(__CUDACC_RTC__)
/// Launches the ready kernel on a list: all that it sends and receives, in one launch. Asynchronous, and capturable
/// into a graph. What goes wrong, such as two ranks that name different sizes, `host::device_communicator::check` says.
template <unsigned MostThreads = 512>  // a template, or every file that includes this would compile the kernel
void send_receive(const device_comm& comm, const channel::connection_handle& connections,
                  const channel::message_table& table, const launch_config& shape) {
  launch(move_messages<MostThreads>, shape, comm, connections, table.on_device());
}
#endif

}  // namespace devcomm::collective
