/// What libfabric does between two processes of this host, in host memory and without devcomm: what GIN's figures are
/// measured by. `raw_libfabric --help` says how.
#include "common/two_processes.hpp"
#include "transport/libfabric_calls.hpp"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using benchmark::side_channel;
using devcomm::host::detail::libfabric_library;
using clock_type = std::chrono::steady_clock;

constexpr std::size_t largest = 64u << 20;

using options = benchmark::two_process_options;

void require(long code, const char* call) {
  if (code != 0) throw std::runtime_error(std::string(call) + ": " + libfabric_library().text_of(code));
}

struct closer {
  template <class Object>
  void operator()(Object* object) const noexcept {
    ::fi_close(&object->fid);
  }
};
template <class Object>
using owned = std::unique_ptr<Object, closer>;

/// One process's end: memory that the other writes to, and how many of its writes have told so.
class end {
 public:
  end(const std::string& provider, const side_channel& beside) : memory_(2 * largest) {
    find(provider);
    fid_fabric* fabric = nullptr;
    require(libfabric_library().fabric(info_->fabric_attr, &fabric, nullptr), "fi_fabric");
    fabric_.reset(fabric);
    fid_domain* domain = nullptr;
    require(::fi_domain(fabric, info_.get(), &domain, nullptr), "fi_domain");
    domain_.reset(domain);
    fi_av_attr table{};
    table.type = FI_AV_TABLE;
    fid_av* peers = nullptr;
    require(::fi_av_open(domain, &table, &peers, nullptr), "fi_av_open");
    peers_.reset(peers);
    fi_cq_attr queue{};
    queue.format = FI_CQ_FORMAT_DATA;
    queue.size = 4096;
    fid_cq* completions = nullptr;
    require(::fi_cq_open(domain, &queue, &completions, nullptr), "fi_cq_open");
    queue_.reset(completions);
    fid_mr* memory = nullptr;
    require(::fi_mr_reg(domain, memory_.data(), memory_.size(), FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE,
                        0, static_cast<std::uint64_t>(::getpid()), 0, &memory, nullptr),
            "fi_mr_reg");
    region_.reset(memory);
    fid_ep* endpoint = nullptr;
    require(::fi_endpoint(domain, info_.get(), &endpoint, nullptr), "fi_endpoint");
    endpoint_.reset(endpoint);
    require(::fi_ep_bind(endpoint, &peers->fid, 0), "fi_ep_bind");
    require(::fi_ep_bind(endpoint, &completions->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    require(::fi_enable(endpoint), "fi_enable");
    find_peer(beside);
  }

  [[nodiscard]] char* source() { return memory_.data(); }
  [[nodiscard]] const char* destination() const { return memory_.data() + largest; }

  /// Writes to the peer's destination, with 8 bytes of data in its queue when `tells`.
  void write(std::size_t bytes, bool tells) {
    fi_rma_iov there{peer_.base + largest, bytes, peer_.key};
    iovec here{memory_.data(), bytes};
    void* descriptor = ::fi_mr_desc(region_.get());
    fi_msg_rma message{};
    message.msg_iov = &here;
    message.desc = &descriptor;
    message.iov_count = 1;
    message.addr = number_;
    message.rma_iov = &there;
    message.rma_iov_count = 1;
    message.data = 1;
    const std::uint64_t flags = FI_COMPLETION | FI_DELIVERY_COMPLETE | (tells ? FI_REMOTE_CQ_DATA : 0);
    ssize_t code = -FI_EAGAIN;
    while ((code = ::fi_writemsg(endpoint_.get(), &message, flags)) == -FI_EAGAIN) poll();
    require(code, "fi_writemsg");
    ++begun_;
  }
  /// Until the peer has told once more.
  void wait_told() {
    ++awaited_;
    while (told_ < awaited_) poll();
  }
  /// Until so few writes of this process are under way.
  void wait_under_way(std::uint64_t few) {
    while (begun_ - done_ > few) poll();
  }
  void meet(const side_channel& beside) {
    beside.meet([this] { poll(); });
  }

 private:
  struct info_deleter {
    void operator()(fi_info* info) const noexcept { libfabric_library().freeinfo(info); }
  };
  struct card {
    std::array<char, 256> name;
    std::size_t bytes;
    std::uint64_t key;
    std::uint64_t base;
  };

  void find(const std::string& provider) {
    const std::unique_ptr<fi_info, info_deleter> hints(libfabric_library().dupinfo(nullptr));
    if (!hints) throw std::runtime_error("fi_dupinfo: out of memory");
    hints->caps = FI_MSG | FI_RMA;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->domain_attr->cq_data_size = 4;
    hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
    hints->fabric_attr->prov_name = ::strdup(provider.c_str());
    const bool by_address = provider.find("tcp") != std::string::npos;
    fi_info* found = nullptr;
    require(libfabric_library().getinfo(FI_VERSION(1, 17), by_address ? "127.0.0.1" : nullptr, nullptr,
                                        by_address ? FI_SOURCE : 0, hints.get(), &found),
            ("fi_getinfo of " + provider).c_str());
    info_.reset(found);
    info_->tx_attr->op_flags = 0;
  }
  void find_peer(const side_channel& beside) {
    card mine{};
    mine.bytes = mine.name.size();
    require(::fi_getname(&endpoint_->fid, mine.name.data(), &mine.bytes), "fi_getname");
    mine.key = ::fi_mr_key(region_.get());
    const bool addresses = (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
    mine.base = addresses ? reinterpret_cast<std::uintptr_t>(memory_.data()) : 0;
    peer_ = beside.swap(mine);
    if (::fi_av_insert(peers_.get(), peer_.name.data(), 1, &number_, 0, nullptr) != 1)
      throw std::runtime_error("fi_av_insert does not take the peer's address");
  }
  void poll() {
    std::array<fi_cq_data_entry, 16> entries{};
    const ssize_t got = ::fi_cq_read(queue_.get(), entries.data(), entries.size());
    if (got == -FI_EAGAIN) {
      // Where there are not two processors for the two processes, the other is to run.
      if (++idle_ % 1024 == 0) std::this_thread::yield();
      return;
    }
    if (got == -FI_EAVAIL) {
      fi_cq_err_entry error{};
      static_cast<void>(::fi_cq_readerr(queue_.get(), &error, 0));
      require(error.err, "a write");
    }
    require(got < 0 ? got : 0, "fi_cq_read");
    for (ssize_t i = 0; i < got; ++i)
      ++((entries[static_cast<std::size_t>(i)].flags & FI_REMOTE_CQ_DATA) != 0 ? told_ : done_);
  }

  std::vector<char> memory_;
  std::unique_ptr<fi_info, info_deleter> info_;
  owned<fid_fabric> fabric_;
  owned<fid_domain> domain_;
  owned<fid_av> peers_;
  owned<fid_cq> queue_;
  owned<fid_mr> region_;
  owned<fid_ep> endpoint_;
  card peer_{};
  fi_addr_t number_ = FI_ADDR_UNSPEC;
  std::uint64_t begun_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t told_ = 0;
  std::uint64_t awaited_ = 0;
  std::uint64_t idle_ = 0;  // polls without a completion
};

/// Microseconds of the median of `takes` calls of `run`.
template <class Run>
double median(int takes, const Run& run) {
  std::vector<double> all;
  for (int i = 0; i < takes; ++i) {
    const auto start = clock_type::now();
    run();
    all.push_back(std::chrono::duration<double, std::micro>(clock_type::now() - start).count());
  }
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

constexpr int takes = 7;

/// One way.
double ping_pong(end& mine, const side_channel& beside, bool first, std::size_t bytes, int rounds) {
  const auto lap = [&] {
    for (int i = 0; i < rounds; ++i) {
      if (first) mine.write(bytes, true);
      mine.wait_told();
      if (!first) mine.write(bytes, true);
    }
    mine.wait_under_way(0);
  };
  lap();
  mine.meet(beside);
  return median(takes, lap) / (2 * rounds);
}

/// Of a write of `bytes` among many, `depth` under way at a time.
double stream(end& mine, const side_channel& beside, bool first, std::size_t bytes, int rounds, std::uint64_t depth) {
  const auto lap = [&] {
    if (first) {
      for (int i = 1; i < rounds; ++i) {
        mine.write(bytes, false);
        mine.wait_under_way(depth - 1);
      }
      mine.wait_under_way(0);
      mine.write(bytes, true);
      mine.wait_under_way(0);
    } else {
      mine.wait_told();
    }
    mine.meet(beside);
  };
  lap();
  return median(takes, lap) / rounds;
}

/// Finer where streams are the fastest.
constexpr std::size_t sizes[] = {8, 128, 2048, 16384, 65536, 262144, 1 << 20, 8 << 20, largest};

/// What a process writes.
char byte_of(bool first, int round) { return static_cast<char>((first ? 1 : 2) + 4 * round); }

void check(const end& mine, std::size_t bytes, bool first, int round) {
  const char expected = byte_of(!first, round);
  const char* const at = mine.destination();
  if (std::count(at, at + bytes, expected) != static_cast<std::ptrdiff_t>(bytes))
    throw std::runtime_error("wrong bytes came");
}

void run(const options& with, const side_channel& beside, bool first) {
  end mine(with.provider, beside);
  if (first)
    std::printf(
        "# libfabric %u.%u, %s, two processes, host memory; microseconds: median of %d measurements\n"
        "# one way of a ping-pong of writes with remote completion data; a write among many, and GB/s\n"
        "#    bytes | ping-pong | among many      GB/s  under way\n",
        FI_MAJOR(libfabric_library().version()), FI_MINOR(libfabric_library().version()), with.provider.c_str(), takes);
  int round = 0;
  for (const std::size_t bytes : sizes) {
    if (bytes > with.end) break;
    ++round;
    std::memset(mine.source(), byte_of(first, round), bytes);
    const int rounds = std::max(
        2, bytes <= 65536 ? with.rounds : static_cast<int>(with.rounds * 65536.0 / static_cast<double>(bytes)));
    const double one_way = ping_pong(mine, beside, first, bytes, rounds);
    check(mine, bytes, first, round);
    double best = 0;
    std::uint64_t best_depth = 0;
    for (const std::uint64_t depth : {1u, 4u, 16u, 64u}) {
      const double each = stream(mine, beside, first, bytes, rounds, depth);
      if (best == 0 || each < best) best = each, best_depth = depth;
    }
    if (first)
      std::printf("%10zu | %9.2f | %10.2f %9.2f %10llu\n", bytes, one_way, best,
                  static_cast<double>(bytes) / best * 1e-3, static_cast<unsigned long long>(best_depth));
    std::fflush(stdout);
    mine.meet(beside);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return benchmark::measure_two_processes(argc, argv, "raw_libfabric",
                                          "libfabric's writes between two processes of this host", largest, run);
}
