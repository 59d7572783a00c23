/// \file packet_programs.cuh
/// Mailboxes, signals, FIFOs and collectives.
#pragma once

#include "mistakes/mistakes.hpp"

namespace mistakes {
namespace {

using namespace devcomm;

/// Two sums, one after the other.
__global__ void sum_twice(device_comm comm, lsa::lamport_handle mailboxes, const float* in, float* out, bool wrong) {
  const collective::slice packs{0, 8};
  const collective::from_memory<float> input{in, 32};
  const collective::to_memory<float> output{out, 32};
  if (wrong) {
    for (int round = 0; round < 2; ++round) {
      lsa::lamport_session session{block{}, comm, mailboxes, 0};
      collective::all_reduce_one_shot<float>(session, packs, input, output, sum{});
    }
  } else {
    lsa::lamport_session session{block{}, comm, mailboxes, 0};
    for (int round = 0; round < 2; ++round)
      collective::all_reduce_one_shot<float>(session, packs, input, output, sum{});
  }
}
void lamport_twice(communicator& comm, bool wrong) {
  auto needs = comm.requirements();
  const auto mailboxes = needs.add(lsa::lamport_mailboxes{comm.lsa(), 1, 8});
  const auto device = comm.create_device_comm(needs);
  const auto memory = comm.allocate(1024, "memory");
  float* const data = memory.pointer<float>().local();
  launch(sum_twice, {.block = 32}, device.get(), mailboxes, data, data + 64, wrong);
  finish(device);
}

__global__ void swap_packets(device_comm comm, lsa::ll_handle mailboxes) {
  lsa::ll_session session{block{}, comm, mailboxes, 0};
  session.begin_round();
  const int ranks = session.members().size;
  for (int m = 0; m < ranks; ++m) session.send(m, threadIdx.x, 7);
  std::uint64_t got[1][1];
  for (int m = 0; m < ranks; ++m) session.receive(m, m + 1, threadIdx.x, got);
}
void mailbox_too_small(communicator& comm, bool wrong) {
  auto needs = comm.requirements();
  const std::uint32_t packets = wrong ? 16 : 32;
  const auto mailboxes = needs.add(lsa::ll_mailboxes{comm.lsa(), 1, packets});
  const auto device = comm.create_device_comm(needs);
  launch(swap_packets, {.block = 32}, device.get(), mailboxes);
  finish(device);
}

/// A session that sends nothing in a round, but waits for others.
__global__ void sends_on_one_rank_less(device_comm comm, lsa::ll_handle mailboxes, bool wrong) {
  lsa::ll_session session{block{}, comm, mailboxes, 0};
  session.begin_round();
  const int ranks = session.members().size;
  const int last = wrong ? ranks - 1 : ranks;
  for (int m = 0; m < last; ++m) session.send(m, threadIdx.x, 7);
  std::uint64_t got[1][1];
  for (int m = 0; m < ranks; ++m) session.receive(m, m + 1, threadIdx.x, got);
}
void packet_not_sent(communicator& comm, bool wrong) {
  auto needs = comm.requirements();
  const auto mailboxes = needs.add(lsa::ll_mailboxes{comm.lsa(), 1, 32});
  const auto device = comm.create_device_comm(needs);
  launch(sends_on_one_rank_less, {.block = 32}, device.get(), mailboxes, wrong);
  finish(device);
}

/// What ranks ask for, in another order on one of them.
void other_needs(communicator& comm, bool wrong) {
  auto needs = comm.requirements();
  if (wrong && comm.rank() == 1) {
    needs.with(lsa::signals{comm.lsa(), 2}).with(lsa::ll_mailboxes{comm.lsa(), 1, 32});
  } else {
    needs.with(lsa::ll_mailboxes{comm.lsa(), 1, 32}).with(lsa::signals{comm.lsa(), 2});
  }
  const auto device = comm.create_device_comm(needs);
}

/// Sends words and then a signal to the next rank.
__global__ void send_and_signal(device_comm comm, lsa::signal_handle signals, sym_ptr<int> words, int* out,
                                bool wrong) {
  lsa::signal_session signal{block{}, comm, signals, 0};
  const int ranks = comm.lsa_size;
  const int next = (comm.lsa_rank() + 1) % ranks;
  words.lsa(next)[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (wrong) {
    signal.add(next, 1, memory_order::relaxed);
  } else {
    signal.add(next, 1);
  }
  signal.take((comm.lsa_rank() + ranks - 1) % ranks);
  out[threadIdx.x] = words.local()[threadIdx.x];
}
void relaxed_signal(communicator& comm, bool wrong) {
  auto needs = comm.requirements();
  const auto signals = needs.add(lsa::signals{comm.lsa(), 1});
  const auto device = comm.create_device_comm(needs);
  const auto words = comm.allocate(32 * sizeof(int), "words");
  const auto out = comm.allocate(32 * sizeof(int), "out");
  launch(send_and_signal, {.block = 32}, device.get(), signals, words.pointer<int>(), out.pointer<int>().local(),
         wrong);
  finish(device);
  expect(comm, out.pointer<int>().local(), 32, [](int i) { return i; });
}

__global__ void take_from_previous(device_comm comm, lsa::signal_handle signals, std::uint64_t taken) {
  lsa::signal_session signal{block{}, comm, signals, 0};
  const int ranks = comm.lsa_size;
  signal.add((comm.lsa_rank() + 1) % ranks, 2);
  signal.take((comm.lsa_rank() + ranks - 1) % ranks, taken);
}
void took_too_much(communicator& comm, bool wrong) {
  auto needs = comm.requirements();
  const auto signals = needs.add(lsa::signals{comm.lsa(), 1});
  const auto device = comm.create_device_comm(needs);
  launch(take_from_previous, {.block = 32}, device.get(), signals, std::uint64_t{wrong ? 3u : 2u});
  finish(device);
}

__global__ void ring_step(device_comm comm, channel::fifo_handle<channel::protocol::simple> fifos, const float* in,
                          float* out, std::uint64_t sent, std::uint64_t received) {
  const team ranks = comm.lsa();
  channel::session ring{block{}, comm, fifos, channel::from_previous(ranks, 0), channel::to_next(ranks, 0)};
  ring.send<float>({0, sent}, collective::from_memory<float>{in, 64});
  ring.recv<float>({0, received}, collective::to_memory<float>{out, 64});
}
void fifo_sizes(communicator& comm, bool wrong) {
  auto needs = comm.requirements();
  const auto fifos = needs.add(channel::simple_fifos{comm.lsa(), 1, 64});
  const auto device = comm.create_device_comm(needs);
  const auto memory = comm.allocate(1024, "memory");
  float* const data = memory.pointer<float>().local();
  const std::uint64_t received = wrong ? 16 : 8;
  launch(ring_step, {.block = 32}, device.get(), fifos, data, data + 64, std::uint64_t{8}, received);
  finish(device);
}
void fifo_steps(communicator& comm, bool wrong) {
  auto needs = comm.requirements();
  const auto fifos = needs.add(channel::simple_fifos{comm.lsa(), 1, 4});
  const auto device = comm.create_device_comm(needs);
  const auto memory = comm.allocate(1024, "memory");
  float* const data = memory.pointer<float>().local();
  const std::uint64_t sent = wrong ? 0 : 8;
  launch(ring_step, {.block = 32}, device.get(), fifos, data, data + 64, sent, std::uint64_t{8});
  finish(device);
}

__global__ void sum_of(device_comm comm, lsa::ll_handle mailboxes, const float* in, float* out,
                       std::uint64_t elements) {
  lsa::ll_session session{block{}, comm, mailboxes, 0};
  collective::all_reduce_one_shot<float>(session, {0, packs_of<float>(elements)},
                                         collective::from_memory<float>{in, elements},
                                         collective::to_memory<float>{out, elements}, sum{});
}
void other_count(communicator& comm, bool wrong) {
  auto needs = comm.requirements();
  const auto mailboxes = needs.add(lsa::ll_mailboxes{comm.lsa(), 1, 64});
  const auto device = comm.create_device_comm(needs);
  const auto memory = comm.allocate(1024, "memory");
  float* const data = memory.pointer<float>().local();
  const std::uint64_t elements = wrong && comm.rank() == 1 ? 60 : 64;
  launch(sum_of, {.block = 32}, device.get(), mailboxes, data, data + 64, elements);
  finish(device);
}

__global__ void second_call(device_comm comm, lsa::ll_handle mailboxes, const float* in, float* out, bool other) {
  lsa::ll_session session{block{}, comm, mailboxes, 0};
  const collective::slice packs{0, 8};
  const collective::from_memory<float> input{in, 32};
  const collective::to_memory<float> output{out, 32};
  collective::all_reduce_one_shot<float>(session, packs, input, output, sum{});
  if (other) {
    collective::broadcast<float>(session, 0, packs, input, output);
  } else {
    collective::all_reduce_one_shot<float>(session, packs, input, output, sum{});
  }
}
void other_call(communicator& comm, bool wrong) {
  auto needs = comm.requirements();
  const auto mailboxes = needs.add(lsa::ll_mailboxes{comm.lsa(), 1, 64});
  const auto device = comm.create_device_comm(needs);
  const auto memory = comm.allocate(1024, "memory");
  float* const data = memory.pointer<float>().local();
  launch(second_call, {.block = 32}, device.get(), mailboxes, data, data + 64, wrong && comm.rank() == 1);
  finish(device);
}

std::vector<mistake> packet_programs() {
  return {{"lamport_twice", lamport_twice},     {"mailbox_too_small", mailbox_too_small},
          {"packet_not_sent", packet_not_sent}, {"other_needs", other_needs},
          {"relaxed_signal", relaxed_signal},   {"took_too_much", took_too_much},
          {"fifo_sizes", fifo_sizes},           {"fifo_steps", fifo_steps},
          {"other_count", other_count},         {"other_call", other_call}};
}

}  // namespace
}  // namespace mistakes
