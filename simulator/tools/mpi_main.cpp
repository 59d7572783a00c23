/// \file mpi_main.cpp
/// The main function of a program that `devcomm-simulate --mpi` runs, and its MPI. Each rank calls the user's own main,
/// which its object has as devcomm_user_main: threads of one process, so that races between ranks are found, or, where
/// variables of the program are not for several ranks, processes. They exchange data in memory that all of them share.
#include <mpi.h>

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

extern "C" int devcomm_user_main(int argc, char** argv);
extern const bool devcomm_mpi_by_processes;  // of a file that devcomm-simulate writes

namespace {

constexpr int max_ranks = 64;
constexpr int max_comms = 256;
constexpr std::size_t chunk = 16384;

/// Ranks of a communicator synchronize here, twice for each chunk that they exchange.
struct rendezvous {
  int size;
  int members[max_ranks];  // world ranks
  int arrived;
  unsigned long rounds;
  char data[max_ranks][chunk];
};
struct shared_memory {
  pthread_mutex_t guard;
  pthread_cond_t changed;
  int comms;
  bool left[max_ranks];  // has returned from main
  rendezvous rendezvous_of[max_comms];
};
shared_memory* all = nullptr;

struct rank_state {
  int rank = -1;
  bool is_initialized = false;
  bool is_finalized = false;
};
thread_local rank_state of_thread;
rank_state of_process;  // threads of a rank that is a process share it

rank_state& self() { return devcomm_mpi_by_processes ? of_process : of_thread; }

[[noreturn]] __attribute__((format(printf, 1, 2))) void fail(const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  std::fflush(stdout);
  std::fprintf(stderr, "MPI, rank %d: %s\n", self().rank, text);
  std::fflush(stderr);
  if (devcomm_mpi_by_processes) ::kill(0, SIGTERM);
  std::_Exit(1);
}

class locked {
 public:
  locked() { pthread_mutex_lock(&all->guard); }
  locked(const locked&) = delete;
  locked& operator=(const locked&) = delete;
  ~locked() { pthread_mutex_unlock(&all->guard); }
  void wait() { pthread_cond_wait(&all->changed, &all->guard); }
};

rendezvous& at(MPI_Comm comm, const char* call) {
  if (self().rank < 0) fail("%s: this thread is of no rank: call MPI from the thread that called main", call);
  if (!self().is_initialized) fail("%s before MPI_Init", call);
  if (self().is_finalized) fail("%s after MPI_Finalize", call);
  if (comm < 0 || comm >= all->comms) fail("%s: the communicator is none that there is", call);
  return all->rendezvous_of[comm];
}
int rank_in(const rendezvous& m, const char* call) {
  const int* const end = m.members + m.size;
  const int* const found = std::find(m.members, end, self().rank);
  if (found == end) fail("%s: this rank is not in the communicator", call);
  return static_cast<int>(found - m.members);
}

void synchronize(rendezvous& m, const char* call) {
  locked hold;
  const unsigned long round = m.rounds;
  if (++m.arrived == m.size) {
    m.arrived = 0;
    ++m.rounds;
    pthread_cond_broadcast(&all->changed);
    return;
  }
  while (m.rounds == round) {
    for (int i = 0; i < m.size; ++i)
      if (all->left[m.members[i]]) fail("%s: rank %d has returned from main, and does not come", call, m.members[i]);
    hold.wait();
  }
}

/// `bytes` of each rank, to `to`, rank 0's first; null: nobody reads them here.
void gather(MPI_Comm comm, const void* mine, std::size_t bytes, char* to, const char* call) {
  rendezvous& m = at(comm, call);
  const int rank = rank_in(m, call);
  for (std::size_t done = 0; done == 0 || done < bytes; done += chunk) {
    const std::size_t part = std::min(chunk, bytes - done);
    std::memcpy(m.data[rank], static_cast<const char*>(mine) + done, part);
    synchronize(m, call);
    for (int r = 0; to != nullptr && r < m.size; ++r)
      std::memcpy(to + static_cast<std::size_t>(r) * bytes + done, m.data[r], part);
    synchronize(m, call);
  }
}

std::size_t bytes_of(MPI_Datatype type, int count, const char* call) {
  const int size = type & 0xf;
  if (count < 0 || type >> 4 < 1 || type >> 4 > 3 || (size != 1 && size != 2 && size != 4 && size != 8))
    fail("%s: %d elements of a type that is not supported", call, count);
  return static_cast<std::size_t>(size) * static_cast<std::size_t>(count);
}

template <class T>
T combine(T a, T b, MPI_Op op, const char* call) {
  switch (op) {
    case MPI_SUM: return static_cast<T>(a + b);
    case MPI_PROD: return static_cast<T>(a * b);
    case MPI_MAX: return std::max(a, b);
    case MPI_MIN: return std::min(a, b);
    case MPI_LAND: return static_cast<T>(a != T{} && b != T{});
    case MPI_LOR: return static_cast<T>(a != T{} || b != T{});
  }
  if constexpr (std::is_integral_v<T>) {
    if (op == MPI_BAND) return static_cast<T>(a & b);
    if (op == MPI_BOR) return static_cast<T>(a | b);
  }
  fail("%s: an operator that is not supported for this type", call);
}
template <class T>
void combine_all(void* result, const char* from, int ranks, int count, MPI_Op op, const char* call) {
  auto* const out = static_cast<T*>(result);
  for (int i = 0; i < count; ++i) {
    T total{};
    for (int r = 0; r < ranks; ++r) {
      T one;
      std::memcpy(&one,
                  from + (static_cast<std::size_t>(r) * static_cast<std::size_t>(count) + static_cast<std::size_t>(i)) *
                             sizeof(T),
                  sizeof(T));
      total = r == 0 ? one : combine(total, one, op, call);
    }
    out[i] = total;
  }
}

void reduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, bool is_wanted, MPI_Comm comm,
            const char* call) {
  const std::size_t bytes = bytes_of(type, count, call);
  const rendezvous& m = at(comm, call);
  std::vector<char> from(bytes * static_cast<std::size_t>(m.size));
  gather(comm, send == MPI_IN_PLACE ? receive : send, bytes, from.data(), call);
  if (!is_wanted) return;
  switch (type) {
    case MPI_INT8_T: return combine_all<std::int8_t>(receive, from.data(), m.size, count, op, call);
    case MPI_INT16_T: return combine_all<std::int16_t>(receive, from.data(), m.size, count, op, call);
    case MPI_INT32_T: return combine_all<std::int32_t>(receive, from.data(), m.size, count, op, call);
    case MPI_INT64_T: return combine_all<std::int64_t>(receive, from.data(), m.size, count, op, call);
    case MPI_UINT8_T: return combine_all<std::uint8_t>(receive, from.data(), m.size, count, op, call);
    case MPI_UINT16_T: return combine_all<std::uint16_t>(receive, from.data(), m.size, count, op, call);
    case MPI_UINT32_T: return combine_all<std::uint32_t>(receive, from.data(), m.size, count, op, call);
    case MPI_UINT64_T: return combine_all<std::uint64_t>(receive, from.data(), m.size, count, op, call);
    case MPI_FLOAT: return combine_all<float>(receive, from.data(), m.size, count, op, call);
    case MPI_DOUBLE: return combine_all<double>(receive, from.data(), m.size, count, op, call);
    default: fail("%s: a type that is not supported", call);
  }
}

/// Ranks of one host follow each other.
int ranks_of_host() {
  const char* const text = std::getenv("DEVCOMM_LSA_SIZE");
  return text != nullptr ? std::max(std::atoi(text), 1) : max_ranks;
}

void make_shared_memory(int ranks) {
  void* const memory =
      ::mmap(nullptr, sizeof(shared_memory), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) fail("no memory for %d ranks", ranks);
  all = static_cast<shared_memory*>(memory);  // zeros are its first state
  pthread_mutexattr_t mutex;
  pthread_mutexattr_init(&mutex);
  pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
  pthread_mutex_init(&all->guard, &mutex);
  pthread_condattr_t condition;
  pthread_condattr_init(&condition);
  pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED);
  pthread_cond_init(&all->changed, &condition);
  all->comms = 1;
  all->rendezvous_of[0].size = ranks;
  for (int r = 0; r < ranks; ++r) all->rendezvous_of[0].members[r] = r;
}

int run_rank(int rank, int argc, char** argv) {
  self().rank = rank;
  std::vector<char*> arguments(argv, argv + argc + 1);  // programs take them apart
  const int status = devcomm_user_main(argc, arguments.data());
  locked hold;
  all->left[rank] = true;
  pthread_cond_broadcast(&all->changed);
  return status;
}

int run_threads(int ranks, int argc, char** argv) {
  std::vector<int> status(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] { status[static_cast<std::size_t>(r)] = run_rank(r, argc, argv); });
  for (auto& each : threads) each.join();
  return *std::max_element(status.begin(), status.end());
}

int run_processes(int ranks, int argc, char** argv) {
  std::vector<pid_t> children;
  for (int r = 0; r < ranks; ++r) {
    const pid_t child = ::fork();
    if (child < 0) fail("no process for rank %d", r);
    if (child == 0) std::exit(run_rank(r, argc, argv));
    children.push_back(child);
  }
  int worst = 0;
  for (std::size_t left = children.size(); left != 0; --left) {
    int status = 0;
    const pid_t ended = ::wait(&status);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    worst = std::max(worst, code);
    if (code == 0) continue;
    for (const pid_t other : children)  // they wait for one that does not come
      if (other != ended) ::kill(other, SIGTERM);
  }
  return worst;
}

}  // namespace

int main(int argc, char** argv) {
  const char* const text = std::getenv("DEVCOMM_RANKS");
  const int ranks = text != nullptr ? std::atoi(text) : 1;
  if (ranks < 1 || ranks > max_ranks) fail("%d ranks; there are 1 to %d", ranks, max_ranks);
  make_shared_memory(ranks);
  return devcomm_mpi_by_processes ? run_processes(ranks, argc, argv) : run_threads(ranks, argc, argv);
}

int MPI_Init(int*, char***) {
  if (self().rank < 0) fail("MPI_Init: this thread is of no rank: call it from the thread that called main");
  if (self().is_initialized) fail("MPI_Init: a second time");
  self().is_initialized = true;
  return MPI_SUCCESS;
}
int MPI_Init_thread(int* argc, char*** argv, int, int* provided) {
  *provided = MPI_THREAD_FUNNELED;
  return MPI_Init(argc, argv);
}
int MPI_Initialized(int* flag) {
  *flag = self().is_initialized ? 1 : 0;
  return MPI_SUCCESS;
}
int MPI_Finalize() {
  synchronize(at(MPI_COMM_WORLD, "MPI_Finalize"), "MPI_Finalize");
  self().is_finalized = true;
  return MPI_SUCCESS;
}
int MPI_Finalized(int* flag) {
  *flag = self().is_finalized ? 1 : 0;
  return MPI_SUCCESS;
}
int MPI_Abort(MPI_Comm, int code) { fail("MPI_Abort with code %d", code); }
int MPI_Comm_rank(MPI_Comm comm, int* rank) {
  *rank = rank_in(at(comm, "MPI_Comm_rank"), "MPI_Comm_rank");
  return MPI_SUCCESS;
}
int MPI_Comm_size(MPI_Comm comm, int* size) {
  *size = at(comm, "MPI_Comm_size").size;
  return MPI_SUCCESS;
}
int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* made) {
  const char* const call = "MPI_Comm_split";
  const rendezvous& parent = at(comm, call);
  struct wish {
    int color, key, rank;
  };
  std::vector<wish> wishes(static_cast<std::size_t>(parent.size));
  const wish mine{color, key, self().rank};
  gather(comm, &mine, sizeof mine, reinterpret_cast<char*>(wishes.data()), call);
  std::erase_if(wishes, [&](const wish& each) { return each.color != color; });
  std::stable_sort(wishes.begin(), wishes.end(), [](const wish& a, const wish& b) { return a.key < b.key; });
  int number = MPI_COMM_NULL;
  if (color != MPI_UNDEFINED && wishes.front().rank == self().rank) {
    const locked hold;
    if (all->comms == max_comms) fail("%s: more than %d communicators", call, max_comms);
    number = all->comms++;
    rendezvous& m = all->rendezvous_of[number];
    m.size = static_cast<int>(wishes.size());
    for (std::size_t i = 0; i < wishes.size(); ++i) m.members[i] = wishes[i].rank;
  }
  std::vector<int> numbers(static_cast<std::size_t>(parent.size));
  gather(comm, &number, sizeof number, reinterpret_cast<char*>(numbers.data()), call);
  *made = MPI_COMM_NULL;
  if (color == MPI_UNDEFINED) return MPI_SUCCESS;
  const int* const first = std::find(parent.members, parent.members + parent.size, wishes.front().rank);
  *made = numbers[static_cast<std::size_t>(first - parent.members)];
  return MPI_SUCCESS;
}
int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info, MPI_Comm* made) {
  if (type != MPI_COMM_TYPE_SHARED) fail("MPI_Comm_split_type: only MPI_COMM_TYPE_SHARED is supported");
  return MPI_Comm_split(comm, self().rank / ranks_of_host(), key, made);
}
int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* made) { return MPI_Comm_split(comm, 0, 0, made); }
int MPI_Comm_free(MPI_Comm* comm) {
  *comm = MPI_COMM_NULL;
  return MPI_SUCCESS;
}
int MPI_Barrier(MPI_Comm comm) {
  synchronize(at(comm, "MPI_Barrier"), "MPI_Barrier");
  return MPI_SUCCESS;
}
int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  const char* const call = "MPI_Bcast";
  const std::size_t bytes = bytes_of(type, count, call);
  const rendezvous& m = at(comm, call);
  if (root < 0 || root >= m.size) fail("%s: root %d of %d ranks", call, root, m.size);
  std::vector<char> from(bytes * static_cast<std::size_t>(m.size));
  gather(comm, data, bytes, from.data(), call);
  std::memcpy(data, from.data() + static_cast<std::size_t>(root) * bytes, bytes);
  return MPI_SUCCESS;
}
static void gather_elements(const void* send, int send_count, MPI_Datatype send_type, void* receive, int receive_count,
                            MPI_Datatype receive_type, bool is_wanted, MPI_Comm comm, const char* call) {
  const bool in_place = send == MPI_IN_PLACE;
  const std::size_t bytes =
      in_place ? bytes_of(receive_type, receive_count, call) : bytes_of(send_type, send_count, call);
  if (is_wanted && bytes != bytes_of(receive_type, receive_count, call))
    fail("%s: what is sent and what is received differ in size", call);
  const rendezvous& m = at(comm, call);
  const std::size_t own = static_cast<std::size_t>(rank_in(m, call)) * bytes;
  std::vector<char> from(bytes * static_cast<std::size_t>(m.size));
  gather(comm, in_place ? static_cast<const char*>(receive) + own : send, bytes, from.data(), call);
  if (is_wanted) std::memcpy(receive, from.data(), from.size());
}
int MPI_Allgather(const void* send, int send_count, MPI_Datatype send_type, void* receive, int receive_count,
                  MPI_Datatype receive_type, MPI_Comm comm) {
  gather_elements(send, send_count, send_type, receive, receive_count, receive_type, true, comm, "MPI_Allgather");
  return MPI_SUCCESS;
}
int MPI_Gather(const void* send, int send_count, MPI_Datatype send_type, void* receive, int receive_count,
               MPI_Datatype receive_type, int root, MPI_Comm comm) {
  const bool is_root = rank_in(at(comm, "MPI_Gather"), "MPI_Gather") == root;
  gather_elements(send, send_count, send_type, receive, receive_count, receive_type, is_root, comm, "MPI_Gather");
  return MPI_SUCCESS;
}
int MPI_Allreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  reduce(send, receive, count, type, op, true, comm, "MPI_Allreduce");
  return MPI_SUCCESS;
}
int MPI_Reduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {
  const bool is_root = rank_in(at(comm, "MPI_Reduce"), "MPI_Reduce") == root;
  reduce(send, receive, count, type, op, is_root, comm, "MPI_Reduce");
  return MPI_SUCCESS;
}
int MPI_Get_processor_name(char* name, int* length) {
  *length = std::snprintf(name, MPI_MAX_PROCESSOR_NAME, "host%d", self().rank / ranks_of_host());
  return MPI_SUCCESS;
}
int MPI_Error_string(int code, char* text, int* length) {
  *length = std::snprintf(text, MPI_MAX_ERROR_STRING, code == MPI_SUCCESS ? "success" : "an error of MPI");
  return MPI_SUCCESS;
}
double MPI_Wtime() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
