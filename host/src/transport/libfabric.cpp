#include "transport/libfabric.hpp"

#include <devcomm/host/error.hpp>

#include "transport/fabric_message.hpp"
#include "transport/libfabric_abi.hpp"
#include "transport/libfabric_calls.hpp"
#include "transport/libfabric_choice.hpp"
#include "transport/shared_file.hpp"
#include "util/random.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

namespace devcomm::host::detail {
namespace {

constexpr std::uint32_t interface_version = FI_VERSION(1, 17);
constexpr std::size_t messages_queued = 1024;

struct closer {
  template <class Object>
  void operator()(Object* object) const noexcept {
    object->fid.ops->close(&object->fid);
  }
};
template <class Object>
using owned = std::unique_ptr<Object, closer>;

struct info_deleter {
  void operator()(fi_info* info) const noexcept { libfabric_library().freeinfo(info); }
};
using owned_info = std::unique_ptr<fi_info, info_deleter>;

/// The contexts of operations, which come back with their completions. A token is one itself, unless providers want
/// memory of their own for each operation.
class operation_contexts {
 public:
  /// Before the first operation.
  void lie_in_memory() { in_memory_ = true; }
  [[nodiscard]] void* lend(std::uint64_t token) {
    if (!in_memory_) return reinterpret_cast<void*>(static_cast<std::uintptr_t>(token));
    if (free_.empty()) free_.push_back(&all_.emplace_back());
    record* const lent = free_.back();
    free_.pop_back();
    lent->token = token;
    return &lent->providers;
  }
  /// The token; 0 of no context, as of a completion that none of this endpoint's operations has.
  std::uint64_t take_back(void* context) {
    if (!in_memory_) return reinterpret_cast<std::uintptr_t>(context);
    if (context == nullptr) return 0;
    auto* const lent = static_cast<record*>(context);
    free_.push_back(lent);
    return lent->token;
  }

 private:
  struct record {
    fi_context2 providers;  // first, so that its address is the record's; fi_context is shorter
    std::uint64_t token;
  };
  bool in_memory_ = false;
  std::deque<record> all_;  // stay where they are
  std::vector<record*> free_;
};

class region final : public fabric_region {
 public:
  /// Without `memory`, a provider needs no registration of it.
  region(owned<fid_mr> memory, std::uint64_t base) : memory_(std::move(memory)), base_(base) {}
  [[nodiscard]] std::uint64_t key() const override { return memory_->key; }
  [[nodiscard]] std::uint64_t base() const override { return base_; }
  [[nodiscard]] void* descriptor() const { return memory_ ? memory_->mem_desc : nullptr; }

 private:
  owned<fid_mr> memory_;
  std::uint64_t base_;
};

/// All answers of the provider, or of all providers where none is named; null, and `problem`, where there are none.
owned_info answers_to(const endpoint_wish& wish, bool devices, std::string& problem) {
  const libfabric_calls& calls = libfabric_library();
  const owned_info hints(calls.dupinfo(nullptr));
  if (!hints) throw system_error("fi_dupinfo of libfabric is out of memory");
  ask_for_provider(*hints, wish.provider, devices);
  fi_info* found = nullptr;
  const char* const at = wish.address.empty() ? nullptr : wish.address.c_str();
  const int code = calls.getinfo(interface_version, at, nullptr, at == nullptr ? 0 : FI_SOURCE, hints.get(), &found);
  owned_info all(found);
  problem = calls.text_of(code);
  return code == 0 ? std::move(all) : nullptr;
}

void* descriptor_of(const fabric_region& memory) { return dynamic_cast<const region&>(memory).descriptor(); }

class endpoint final : public fabric {
 public:
  explicit endpoint(const endpoint_wish& wish) : provider_(wish.provider) {
    find(wish);
    rules_ = memory_rules_of(*info_);
    if (wants_contexts(*info_)) contexts_.lie_in_memory();
    require(calls_.fabric(info_->fabric_attr, out(fabric_), nullptr), "fi_fabric");
    require(fabric_->ops->domain(fabric_.get(), info_.get(), out(domain_), nullptr), "fi_domain");
    fi_av_attr addresses{};
    addresses.type = FI_AV_TABLE;
    addresses.count = wish.peers;
    require(domain_->ops->av_open(domain_.get(), &addresses, out(peers_), nullptr), "fi_av_open");
    fi_cq_attr queue{};
    queue.format = FI_CQ_FORMAT_DATA;
    // Names of writes come without being asked for, so many from each peer.
    queue.size = messages_queued + wish.peers * max_named(wish.peers) * max_unacknowledged;
    require(domain_->ops->cq_open(domain_.get(), &queue, out(queue_), nullptr), "fi_cq_open");
    require(domain_->ops->endpoint(domain_.get(), info_.get(), out(endpoint_), nullptr), "fi_endpoint");
    require(endpoint_->fid.ops->bind(&endpoint_->fid, &peers_->fid, 0), "fi_ep_bind");
    require(endpoint_->fid.ops->bind(&endpoint_->fid, &queue_->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    if (to_devices_.available) insist_on_device_transfers();
    if (provider_ == "shm") name_shared_file();
    require(endpoint_->fid.ops->control(&endpoint_->fid, FI_ENABLE, nullptr), "fi_enable");
  }

  [[nodiscard]] std::string name() const override { return "libfabric's provider " + provider_; }

  [[nodiscard]] std::string card() const override {
    return info_->domain_attr->name == nullptr ? "" : info_->domain_attr->name;
  }

  [[nodiscard]] fabric_address address() const override {
    fabric_address own;
    std::size_t bytes = own.name.size();
    require(endpoint_->cm->getname(&endpoint_->fid, own.name.data(), &bytes), "fi_getname");
    own.bytes = static_cast<std::uint32_t>(bytes);
    return own;
  }

  void connect(std::span<const fabric_address> peers) override {
    numbers_.resize(peers.size(), FI_ADDR_UNSPEC);
    for (std::size_t rank = 0; rank < peers.size(); ++rank) {
      if (numbers_[rank] != FI_ADDR_UNSPEC || peers[rank].bytes == 0) continue;
      const int inserted = peers_->ops->insert(peers_.get(), peers[rank].name.data(), 1, &numbers_[rank], 0, nullptr);
      if (inserted != 1) {
        throw system_error("fi_av_insert of " + name() + " does not take the address of rank " + std::to_string(rank) +
                           (inserted < 0 ? ": " + calls_.text_of(inserted) : "") +
                           "; let DEVCOMM_ADDRESS or DEVCOMM_INTERFACE name addresses of one network on all hosts");
      }
    }
  }

  [[nodiscard]] capability to_devices() const override { return to_devices_; }
  [[nodiscard]] std::unique_ptr<fabric_region> add_memory(char* base, std::size_t bytes,
                                                          std::optional<int> device) override {
    constexpr std::uint64_t access = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    return std::make_unique<region>(registered(base, bytes, access, "memory for peers", device),
                                    rules_.peers_use_addresses ? reinterpret_cast<std::uintptr_t>(base) : 0);
  }
  [[nodiscard]] std::unique_ptr<fabric_region> add_buffers(std::span<std::byte> memory) override {
    owned<fid_mr> made;
    constexpr std::uint64_t access = FI_SEND | FI_RECV | FI_READ | FI_WRITE;
    if (rules_.registers_messages) made = registered(memory.data(), memory.size(), access, "buffers", {});
    return std::make_unique<region>(std::move(made), 0);
  }
  [[nodiscard]] bool names_writes() const override { return can_name_writes(*info_); }
  [[nodiscard]] std::uint64_t largest_transfer() const override { return info_->ep_attr->max_msg_size; }
  [[nodiscard]] std::uint64_t largest_message() const override { return info_->ep_attr->max_msg_size; }
  [[nodiscard]] std::string text_of(int code) const override { return calls_.text_of(code); }

  [[nodiscard]] bool send(int peer, std::span<const std::byte> message, const fabric_region& region,
                          std::uint64_t token) override {
    return issue("fi_send", token, [&](void* context) {
      return endpoint_->msg->send(endpoint_.get(), message.data(), message.size(), descriptor_of(region),
                                  number_of(peer), context);
    });
  }
  [[nodiscard]] bool receive(std::span<std::byte> buffer, const fabric_region& region, std::uint64_t token) override {
    return issue("fi_recv", token, [&](void* context) {
      return endpoint_->msg->recv(endpoint_.get(), buffer.data(), buffer.size(), descriptor_of(region), FI_ADDR_UNSPEC,
                                  context);
    });
  }
  [[nodiscard]] bool write(int peer, std::span<const char> source, const fabric_region& region,
                           remote_address destination, std::uint64_t token,
                           std::optional<std::uint32_t> name) override {
    transfer one(const_cast<char*>(source.data()), source.size(), region, destination, number_of(peer));
    one.message.data = name.value_or(0);
    const std::uint64_t ends = name ? FI_REMOTE_CQ_DATA : FI_DELIVERY_COMPLETE;
    return issue("fi_writemsg", token, [&](void* context) {
      one.message.context = context;
      return endpoint_->rma->writemsg(endpoint_.get(), &one.message, FI_COMPLETION | ends);
    });
  }
  [[nodiscard]] bool read(int peer, std::span<char> destination, const fabric_region& region, remote_address source,
                          std::uint64_t token) override {
    transfer one(destination.data(), destination.size(), region, source, number_of(peer));
    return issue("fi_readmsg", token, [&](void* context) {
      one.message.context = context;
      // shm reads the peer's memory without checking its key otherwise.
      return endpoint_->rma->readmsg(endpoint_.get(), &one.message, FI_COMPLETION | FI_DELIVERY_COMPLETE);
    });
  }

  [[nodiscard]] std::size_t poll(std::span<fabric_completion> over) override {
    const std::size_t most = std::min(over.size(), entries_.size());
    const ssize_t got = queue_->ops->read(queue_.get(), entries_.data(), most);
    if (got == -FI_EAGAIN) return 0;
    if (got == -FI_EAVAIL) {
      return failed(over[0]) ? 1 : 0;
    }
    if (got < 0) throw system_error("fi_cq_read of " + name() + " failed: " + calls_.text_of(got));
    const auto count = static_cast<std::size_t>(got);
    for (std::size_t i = 0; i < count; ++i) {
      const fi_cq_data_entry& each = entries_[i];
      constexpr std::uint64_t own = FI_SEND | FI_WRITE | FI_READ;
      if ((each.flags & FI_REMOTE_CQ_DATA) != 0 && (each.flags & own) == 0) {
        over[i] = {0, 0, {}, static_cast<std::uint32_t>(each.data)};
      } else {
        over[i] = {contexts_.take_back(each.op_context), each.len, {}, {}};
      }
    }
    return count;
  }

 private:
  /// The arguments of a write or a read.
  struct transfer {
    transfer(char* local, std::size_t bytes, const fabric_region& region, remote_address there, fi_addr_t peer)
        : here{local, bytes}, descriptor(descriptor_of(region)), remote{there.address, bytes, there.key} {
      message.msg_iov = &here;
      message.desc = &descriptor;
      message.iov_count = 1;
      message.addr = peer;
      message.rma_iov = &remote;
      message.rma_iov_count = 1;
    }
    transfer(const transfer&) = delete;
    transfer& operator=(const transfer&) = delete;

    iovec here;
    void* descriptor;
    fi_rma_iov remote;
    fi_msg_rma message{};
  };

  /// Lets a function of libfabric's fill in an owner.
  template <class Object>
  class filler {
   public:
    explicit filler(owned<Object>& owner) : owner_(owner) {}
    ~filler() { owner_.reset(made_); }
    filler(const filler&) = delete;
    filler& operator=(const filler&) = delete;
    operator Object**() { return &made_; }

   private:
    owned<Object>& owner_;
    Object* made_ = nullptr;
  };
  template <class Object>
  [[nodiscard]] static filler<Object> out(owned<Object>& owner) {
    return filler<Object>(owner);
  }

  /// What the engine asks of a provider: messages, and writes that are complete when they have been delivered.
  void find(const endpoint_wish& wish) {
    to_devices_ = wish.devices;
    if (to_devices_.available && moves_by_threads(provider_)) {
      to_devices_ = {false, name() + " moves data by threads of the host, which do not reach it"};
    }
    std::string problem;
    if (to_devices_.available) {
      info_ = answer_to(wish, true, problem);
      if (info_ == nullptr) to_devices_ = {false, name() + " does not reach it (FI_HMEM: " + problem + ")"};
    }
    std::string cards;
    if (info_ == nullptr) info_ = answer_to(wish, false, problem, &cards);
    if (info_ == nullptr && !cards.empty()) {
      throw not_supported("libfabric's provider \"" + provider_ + "\" has no card \"" + wish.card + "\", but " + cards +
                          (wish.address.empty() ? "" : " at " + wish.address) +
                          "; set DEVCOMM_GIN_CARD to one that it has, or unset it");
    }
    if (info_ == nullptr) {
      throw not_supported("libfabric has no provider \"" + provider_ + "\"" +
                          (wish.card.empty() ? "" : " on \"" + wish.card + "\"") +
                          (wish.address.empty() ? "" : " at " + wish.address) +
                          " with messages and remote writes that complete on delivery (" + problem + ")" +
                          (provider_ == "shm" ? ", which needs 17 MiB of /dev/shm for each rank" : "") +
                          "; set DEVCOMM_GIN_PROVIDER to another one, such as tcp;ofi_rxm; `fi_info -l` lists those "
                          "that are installed");
    }
    if (const std::string why = why_unusable(*info_, provider_); !why.empty()) throw not_supported(why);
    // What it says by itself, when not asked, is less.
    info_->tx_attr->op_flags = 0;
    if (to_devices_.available) to_devices_.reason = name() + " reaches it (FI_HMEM)";
  }
  /// The provider's answer, of the card to take; null, and `problem`, where it has none; and `cards`, where it has
  /// others than the one that is named.
  [[nodiscard]] static owned_info answer_to(const endpoint_wish& wish, bool devices, std::string& problem,
                                            std::string* cards = nullptr) {
    const owned_info all = answers_to(wish, devices, problem);
    if (all == nullptr) return nullptr;
    const fi_info* const chosen =
        wish.card.empty() ? &nearest_card(*all, wish.pci, wish.turn) : answer_of_card(*all, wish.card);
    if (chosen == nullptr) {
      problem = "no card \"" + wish.card + "\"";
      if (cards != nullptr) *cards = names_of_cards(*all);
      return nullptr;
    }
    owned_info one(libfabric_library().dupinfo(chosen));
    if (!one) throw system_error("fi_dupinfo of libfabric is out of memory");
    return one;
  }
  /// A provider that would rather copy by threads of the host says here that it cannot do without; one that does not
  /// know the option has no such threads.
  void insist_on_device_transfers() {
    int wanted = FI_HMEM_P2P_REQUIRED;
    const int code =
        endpoint_->ops->setopt(&endpoint_->fid, FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &wanted, sizeof wanted);
    if (code == 0 || code == -FI_ENOPROTOOPT || code == -FI_ENOSYS) return;
    to_devices_ = {
        false, name() + " reaches it by threads of the host only (FI_HMEM_P2P_REQUIRED: " + calls_.text_of(code) + ")"};
  }

  /// The file in /dev/shm, which a process that is killed leaves there. By itself it would have the number of the
  /// process in its name, which another one has one day, in containers soon.
  void name_shared_file() {
    sweep_shared_files("/dev/shm");
    std::string name = "fi_shm://" + name_of_shared_file();
    require(endpoint_->cm->setname(&endpoint_->fid, name.data(), name.size() + 1), "fi_setname");
  }

  void require(long code, const char* call) const {
    if (code == 0) return;
    if (code == -EMFILE || code == -ENFILE) {
      throw system_error(std::string(call) + " of " + name() + " failed: " + calls_.text_of(code) +
                         "; allow this process more open files: ulimit -n, or LimitNOFILE of its service");
    }
    throw system_error(
        std::string(call) + " of " + name() + " failed: " + calls_.text_of(code) +
        "; set DEVCOMM_GIN_PROVIDER to another provider, or FI_LOG_LEVEL=warn to see what libfabric says");
  }
  /// Whether the provider has taken the operation that `call` makes of the context that it is given.
  template <class Call>
  [[nodiscard]] bool issue(const char* call, std::uint64_t token, const Call& make) {
    void* const context = contexts_.lend(token);
    const ssize_t code = make(context);
    if (code == 0) return true;
    static_cast<void>(contexts_.take_back(context));
    if (code == -FI_EAGAIN) return false;
    throw system_error(std::string(call) + " of " + name() + ": " + calls_.text_of(code));
  }

  [[nodiscard]] owned<fid_mr> registered(void* base, std::size_t bytes, std::uint64_t access, const char* what,
                                         std::optional<int> device) const {
    owned<fid_mr> made;
    const iovec memory{base, bytes};
    fi_mr_attr asked{};
    asked.mr_iov = &memory;
    asked.iov_count = 1;
    asked.access = access;
    // Where providers take keys, strangers would have to guess 64 bits.
    asked.requested_key = random_value<std::uint64_t>();
    if (device) {
      asked.iface = FI_HMEM_CUDA;
      asked.device.cuda = *device;
    }
    const char* call = "fi_mr_regattr";
    int code = domain_->mr->regattr(&domain_->fid, &asked, 0, out(made));
    if (code == 0 && rules_.is_the_endpoints) {
      call = "fi_mr_bind";
      code = made->fid.ops->bind(&made->fid, &endpoint_->fid, 0);
      if (code == 0) {
        call = "fi_mr_enable";
        code = made->fid.ops->control(&made->fid, FI_ENABLE, nullptr);
      }
    }
    if (code != 0) {
      throw registration_error(std::string(call) + " of " + name() + " cannot register " + std::to_string(bytes) +
                                   " bytes of " + what + ": " + calls_.text_of(code) +
                                   (device ? "; set DEVCOMM_GIN_PAYLOAD to staged, or see whether the driver lets "
                                             "network cards reach GPU memory (nvidia-peermem, dma-buf)"
                                           : "; allow more locked memory (ulimit -l), or free windows"),
                               code);
    }
    return made;
  }
  [[nodiscard]] fi_addr_t number_of(int peer) const { return numbers_[static_cast<std::size_t>(peer)]; }

  /// The operation that failed; false where there is none after all.
  [[nodiscard]] bool failed(fabric_completion& one) {
    fi_cq_err_entry entry{};
    const ssize_t got = queue_->ops->readerr(queue_.get(), &entry, 0);
    if (got == -FI_EAGAIN) return false;
    if (got < 0) throw system_error("fi_cq_readerr of " + name() + " failed: " + calls_.text_of(got));
    const char* const what = (entry.flags & FI_READ) != 0    ? "a read"
                             : (entry.flags & FI_WRITE) != 0 ? "a write"
                             : (entry.flags & FI_RECV) != 0  ? "a message that came"
                                                             : "a message";
    one = {contexts_.take_back(entry.op_context), entry.len,
           name() + " could not complete " + what + ": " + calls_.text_of(entry.err)};
    return true;
  }

  const libfabric_calls& calls_ = libfabric_library();
  const std::string provider_;
  capability to_devices_;
  owned_info info_;
  memory_rules rules_;
  operation_contexts contexts_;  // which the endpoint uses until it is closed
  owned<fid_fabric> fabric_;
  owned<fid_domain> domain_;
  owned<fid_av> peers_;
  owned<fid_cq> queue_;
  owned<fid_ep> endpoint_;
  std::vector<fi_addr_t> numbers_;
  std::array<fi_cq_data_entry, 32> entries_{};  // of a poll
};

}  // namespace

std::unique_ptr<fabric> open_libfabric(const endpoint_wish& wish) { return std::make_unique<endpoint>(wish); }

std::vector<std::string> usable_card_providers(endpoint_wish wish, std::string& obstacle) {
  wish.provider.clear();
  wish.address.clear();  // of the bootstrap's network, which need not be the cards'
  std::string problem;
  const owned_info all = answers_to(wish, false, problem);
  obstacle = all == nullptr      ? "libfabric has no provider that can be used (" + problem + ")"
             : wish.card.empty() ? "no provider of libfabric drives a network card"
                                 : "no provider of libfabric drives the network card \"" + wish.card + "\"";
  std::vector<std::string> usable;
  for (const std::string& each : providers_of_cards(all.get(), wish.card, obstacle)) {
    wish.provider = each;
    try {
      const auto tried = open_libfabric(wish);
      std::array<char, 4096> memory{};
      static_cast<void>(tried->add_memory(memory.data(), memory.size(), {}));
      usable.push_back(each);
    } catch (const error& failure) {
      obstacle = failure.what();
    }
  }
  return usable;
}

}  // namespace devcomm::host::detail
