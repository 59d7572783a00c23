// A libfabric.so.1 before the real one, whose providers drive network cards that are made up. They move data as
// tcp;ofi_rxm does, but want of their caller what some real ones do, and end the process where they do not get it:
//
//   cxi    regions bound to the endpoint and enabled, closed before it, and named by every operation (FI_MR_ENDPOINT,
//          FI_MR_LOCAL); a context of 8 words for each operation, the provider's until it is over (FI_CONTEXT2)
//   psm3   a context of 4 words (FI_CONTEXT)
//
// STRICT_CARDS lists those that the process has: "cxi psm3". ":down" behind a name is a card whose link is down,
// ":broken" one that cannot be opened.
#include <dlfcn.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>

namespace {

constexpr const char* real_name = "tcp;ofi_rxm";

struct kind {
  const char* name;
  std::uint64_t mode;
  int mr_mode;
};
constexpr std::array kinds{
    kind{"cxi", FI_CONTEXT2, FI_MR_ENDPOINT | FI_MR_LOCAL},
    kind{"psm3", FI_CONTEXT, 0},
};
constexpr kind plain{real_name, 0, 0};

const kind* kind_named(const char* name) {
  for (const kind& each : kinds) {
    if (name != nullptr && std::strcmp(each.name, name) == 0) return &each;
  }
  return nullptr;
}
const kind& kind_of(const fi_info& info) {
  const kind* const found = kind_named(info.fabric_attr->prov_name);
  return found == nullptr ? plain : *found;
}

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "strict libfabric: %s\n", what.c_str());
  std::abort();
}
void require(bool holds, const char* what) {
  if (!holds) fail(what);
}

template <class Function>
Function* real(Function*, const char* name) {
  static void* const library = ::dlopen(STAND_IN_REAL_LIBFABRIC, RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Function*>(::dlsym(library, name));
}

/// What is after `name` in STRICT_CARDS, as "down"; null where the process does not have it.
std::unique_ptr<std::string> state_of(const char* name) {
  const char* const listed = std::getenv("STRICT_CARDS");
  std::istringstream all(listed == nullptr ? "" : listed);
  for (std::string each; all >> each;) {
    const auto colon = each.find(':');
    if (each.substr(0, colon) != name) continue;
    return std::make_unique<std::string>(colon == std::string::npos ? "" : each.substr(colon + 1));
  }
  return nullptr;
}

/// While it lives, the real provider's view of `info`.
class as_real {
 public:
  explicit as_real(fi_info& info)
      : info_(info),
        mode_(info.mode),
        mr_mode_(info.domain_attr->mr_mode),
        nic_(info.nic),
        name_(info.fabric_attr->prov_name) {
    info_.mode = 0;
    info_.domain_attr->mr_mode = 0;
    info_.nic = nullptr;
    info_.fabric_attr->prov_name = real_.data();
  }
  ~as_real() {
    info_.mode = mode_;
    info_.domain_attr->mr_mode = mr_mode_;
    info_.nic = nic_;
    info_.fabric_attr->prov_name = name_;
  }
  as_real(const as_real&) = delete;
  as_real& operator=(const as_real&) = delete;

 private:
  fi_info& info_;
  std::uint64_t mode_;
  int mr_mode_;
  fid_nic* nic_;
  char* name_;
  std::string real_ = real_name;
};

// Functions of the real objects, in whose place are those below.
decltype(fi_ops_fabric::domain) real_domain;
decltype(fi_ops_domain::endpoint) real_endpoint;
decltype(fi_ops_domain::cq_open) real_cq_open;
decltype(fi_ops_mr::regattr) real_regattr;
decltype(fi_ops::close) real_close_endpoint;
decltype(fi_ops_msg::send) real_send;
decltype(fi_ops_msg::recv) real_recv;
decltype(fi_ops_rma::writemsg) real_writemsg;
decltype(fi_ops_rma::readmsg) real_readmsg;
decltype(fi_ops_cq::read) real_read;
decltype(fi_ops_cq::readerr) real_readerr;

struct region {
  fid_mr seen{};  // first: what the caller has is its address
  fid_mr* real = nullptr;
  fid* endpoint = nullptr;
  bool enabled = false;
};

std::mutex mutex;
std::map<const fid*, kind> kinds_of;  // of domains and endpoints
std::map<void*, region*> regions;     // by descriptor
struct loan {
  const fid* endpoint;
  std::size_t bytes;
};
std::map<void*, loan> lent;  // contexts of operations that are not over
constexpr unsigned char providers_own = 0xc7;

kind kind_of(const fid& object) {
  const std::lock_guard lock(mutex);
  return kinds_of.at(&object);
}

void take_context(const kind& needs, const fid_ep* endpoint, void* context) {
  const std::size_t bytes = needs.mode == FI_CONTEXT2  ? sizeof(fi_context2)
                            : needs.mode == FI_CONTEXT ? sizeof(fi_context)
                                                       : 0;
  if (bytes == 0) return;
  const std::lock_guard lock(mutex);
  require(context != nullptr, "an operation has no context");
  require(lent.emplace(context, loan{&endpoint->fid, bytes}).second,
          "an operation has the context of one that is not over");
  std::memset(context, providers_own, bytes);
}
void give_context_back(const kind& needs, void* context) {
  if (needs.mode == 0) return;
  const std::lock_guard lock(mutex);
  const auto found = lent.find(context);
  require(found != lent.end(), "a context is given back that was not lent");
  const auto* const bytes = static_cast<const unsigned char*>(context);
  for (std::size_t i = 0; i < found->second.bytes; ++i)
    require(bytes[i] == providers_own, "somebody has written a context");
  lent.erase(found);
}

/// The real provider's descriptor of the caller's.
void* real_descriptor(const kind& needs, void* descriptor) {
  if ((needs.mr_mode & FI_MR_LOCAL) == 0) return descriptor;
  const std::lock_guard lock(mutex);
  const auto found = regions.find(descriptor);
  require(found != regions.end(), "an operation names no region for its memory");
  require((needs.mr_mode & FI_MR_ENDPOINT) == 0 || found->second->enabled, "a region is used that is not enabled");
  return found->second->real->mem_desc;
}

template <class Call>
ssize_t operate(const kind& needs, const fid_ep* endpoint, void* context, const Call& call) {
  take_context(needs, endpoint, context);
  const ssize_t code = call();
  if (code != 0) give_context_back(needs, context);
  return code;
}

ssize_t send(fid_ep* endpoint, const void* from, size_t bytes, void* descriptor, fi_addr_t to, void* context) {
  const kind needs = kind_of(endpoint->fid);
  void* const real = real_descriptor(needs, descriptor);
  return operate(needs, endpoint, context, [&] { return real_send(endpoint, from, bytes, real, to, context); });
}
ssize_t recv(fid_ep* endpoint, void* to, size_t bytes, void* descriptor, fi_addr_t from, void* context) {
  const kind needs = kind_of(endpoint->fid);
  void* const real = real_descriptor(needs, descriptor);
  return operate(needs, endpoint, context, [&] { return real_recv(endpoint, to, bytes, real, from, context); });
}
ssize_t transfer(decltype(real_writemsg) call, fid_ep* endpoint, const fi_msg_rma* what, std::uint64_t flags) {
  const kind needs = kind_of(endpoint->fid);
  fi_msg_rma copy = *what;
  require(copy.rma_iov[0].key != FI_KEY_NOTAVAIL, "an operation names a region of the peer that is not enabled");
  void* descriptor = real_descriptor(needs, copy.desc == nullptr ? nullptr : copy.desc[0]);
  copy.desc = &descriptor;
  return operate(needs, endpoint, what->context, [&] { return call(endpoint, &copy, flags); });
}
ssize_t writemsg(fid_ep* endpoint, const fi_msg_rma* what, std::uint64_t flags) {
  return transfer(real_writemsg, endpoint, what, flags);
}
ssize_t readmsg(fid_ep* endpoint, const fi_msg_rma* what, std::uint64_t flags) {
  return transfer(real_readmsg, endpoint, what, flags);
}

ssize_t read(fid_cq* queue, void* entries, size_t count) {
  const ssize_t got = real_read(queue, entries, count);
  const kind needs = kind_of(queue->fid);
  for (ssize_t i = 0; i < got; ++i) {
    fi_cq_data_entry& each = static_cast<fi_cq_data_entry*>(entries)[i];
    const bool is_own = (each.flags & (FI_SEND | FI_RECV | FI_WRITE | FI_READ)) != 0;
    if (is_own)
      give_context_back(needs, each.op_context);
    else
      each.op_context = &lent;  // of no operation
  }
  return got;
}
ssize_t readerr(fid_cq* queue, fi_cq_err_entry* entry, std::uint64_t flags) {
  const ssize_t got = real_readerr(queue, entry, flags);
  if (got > 0 && entry->op_context != nullptr) give_context_back(kind_of(queue->fid), entry->op_context);
  return got;
}

int bind_region(fid* object, fid* endpoint, std::uint64_t) {
  region& r = *reinterpret_cast<region*>(object);
  require(endpoint->fclass == FI_CLASS_EP, "a region is bound to what is no endpoint");
  r.endpoint = endpoint;
  return 0;
}
int control_region(fid* object, int command, void*) {
  region& r = *reinterpret_cast<region*>(object);
  require(command == FI_ENABLE && r.endpoint != nullptr, "a region is enabled before it is bound");
  r.enabled = true;
  r.seen.key = r.real->key;
  return 0;
}
int close_region(fid* object) {
  region* const r = reinterpret_cast<region*>(object);
  {
    const std::lock_guard lock(mutex);
    regions.erase(r->seen.mem_desc);
  }
  const int code = r->real->fid.ops->close(&r->real->fid);
  delete r;
  return code;
}

int regattr(fid* domain, const fi_mr_attr* asked, std::uint64_t flags, fid_mr** made) {
  const kind needs = kind_of(*domain);
  if (needs.mr_mode == 0) return real_regattr(domain, asked, flags, made);
  auto r = std::make_unique<region>();
  const int code = real_regattr(domain, asked, flags, &r->real);
  if (code != 0) return code;
  static fi_ops ops{sizeof(fi_ops), close_region, bind_region, control_region, nullptr, nullptr, nullptr};
  r->seen.fid = {FI_CLASS_MR, nullptr, &ops};
  r->seen.mem_desc = r.get();
  r->seen.key = FI_KEY_NOTAVAIL;
  const std::lock_guard lock(mutex);
  *made = &regions.emplace(r.get(), r.get()).first->second->seen;
  static_cast<void>(r.release());
  return 0;
}

int close_endpoint(fid* object) {
  {
    const std::lock_guard lock(mutex);
    for (const auto& [descriptor, r] : regions) {
      require(r->endpoint != object, "an endpoint is closed before the regions that are bound to it");
    }
    std::erase_if(lent, [&](const auto& each) { return each.second.endpoint == object; });  // they will never be over
    kinds_of.erase(object);
  }
  return real_close_endpoint(object);
}

/// Puts `mine` in the place of a table of functions; `keep` saves the real ones, once.
template <class Table, class Keep>
void replace(Table*& place, Table& mine, const Keep& keep) {
  static std::once_flag once;
  std::call_once(once, [&] {
    mine = *place;
    keep(mine);
  });
  place = &mine;
}

int endpoint(fid_domain* domain, fi_info* info, fid_ep** made, void* context) {
  const kind needs = kind_of(*info);
  const as_real view(*info);
  const int code = real_endpoint(domain, info, made, context);
  if (code != 0) return code;
  static fi_ops own;
  static fi_ops_msg messages;
  static fi_ops_rma transfers;
  replace((*made)->fid.ops, own, [](fi_ops& all) {
    real_close_endpoint = all.close;
    all.close = close_endpoint;
  });
  replace((*made)->msg, messages, [](fi_ops_msg& all) {
    real_send = all.send;
    real_recv = all.recv;
    all.send = send;
    all.recv = recv;
  });
  replace((*made)->rma, transfers, [](fi_ops_rma& all) {
    real_writemsg = all.writemsg;
    real_readmsg = all.readmsg;
    all.writemsg = writemsg;
    all.readmsg = readmsg;
  });
  const std::lock_guard lock(mutex);
  kinds_of[&(*made)->fid] = needs;
  return code;
}

int cq_open(fid_domain* domain, fi_cq_attr* asked, fid_cq** made, void* context) {
  const int code = real_cq_open(domain, asked, made, context);
  if (code != 0) return code;
  require(asked->format == FI_CQ_FORMAT_DATA, "entries of completions have another shape here");
  static fi_ops_cq reads;
  replace((*made)->ops, reads, [](fi_ops_cq& all) {
    real_read = all.read;
    real_readerr = all.readerr;
    all.read = read;
    all.readerr = readerr;
  });
  const std::lock_guard lock(mutex);
  kinds_of[&(*made)->fid] = kinds_of.at(&domain->fid);
  return code;
}

int domain(fid_fabric* fabric, fi_info* info, fid_domain** made, void* context) {
  const kind needs = kind_of(*info);
  const auto state = state_of(needs.name);
  if (state && *state == "broken") return -FI_ENODEV;
  const as_real view(*info);
  const int code = real_domain(fabric, info, made, context);
  if (code != 0) return code;
  static fi_ops_domain objects;
  static fi_ops_mr memory;
  replace((*made)->ops, objects, [](fi_ops_domain& all) {
    real_endpoint = all.endpoint;
    real_cq_open = all.cq_open;
    all.endpoint = endpoint;
    all.cq_open = cq_open;
  });
  replace((*made)->mr, memory, [](fi_ops_mr& all) {
    real_regattr = all.regattr;
    all.regattr = regattr;
  });
  const std::lock_guard lock(mutex);
  kinds_of[&(*made)->fid] = needs;
  return code;
}

/// Somewhere on the PCI bus.
fid_nic* card(bool is_up) {
  static fi_bus_attr bus{FI_BUS_PCI, {{0, 0x19, 0, 0}}};
  static std::array<fi_link_attr, 2> links{fi_link_attr{nullptr, 0, 0, FI_LINK_DOWN, nullptr},
                                           fi_link_attr{nullptr, 0, 0, FI_LINK_UP, nullptr}};
  static std::array<fid_nic, 2> cards{fid_nic{{}, nullptr, &bus, &links[0], nullptr},
                                      fid_nic{{}, nullptr, &bus, &links[1], nullptr}};
  return &cards[is_up ? 1 : 0];
}

}  // namespace

extern "C" {

const char* fi_strerror(int code) { return real(&fi_strerror, "fi_strerror")(code); }
std::uint32_t fi_version() { return real(&fi_version, "fi_version")(); }

void fi_freeinfo(fi_info* info) {
  for (fi_info* each = info; each != nullptr; each = each->next) each->nic = nullptr;
  real(&fi_freeinfo, "fi_freeinfo")(info);
}

fi_info* fi_dupinfo(const fi_info* info) {
  const auto copy = real(&fi_dupinfo, "fi_dupinfo");
  if (info == nullptr) return copy(nullptr);
  fi_info without = *info;
  without.nic = nullptr;
  fi_info* const made = copy(&without);
  if (made != nullptr) made->nic = info->nic;
  return made;
}

int fi_getinfo(std::uint32_t version, const char* node, const char* service, std::uint64_t flags, const fi_info* hints,
               fi_info** found) {
  fi_info& asked = const_cast<fi_info&>(*hints);
  const char* const name = asked.fabric_attr->prov_name;
  if ((asked.caps & FI_HMEM) != 0) return -FI_ENODATA;
  if (kind_named(name) != nullptr && !state_of(name)) return -FI_ENODATA;
  fi_info* all = nullptr;
  {
    const as_real view(asked);
    const int code = real(&fi_getinfo, "fi_getinfo")(version, node, service, flags, &asked, &all);
    if (code != 0) return code;
  }
  fi_info* answers = name == nullptr || kind_named(name) == nullptr ? all : nullptr;
  for (auto each = kinds.rbegin(); each != kinds.rend(); ++each) {
    const auto state = state_of(each->name);
    if (!state || (name != nullptr && std::strcmp(name, each->name) != 0)) continue;
    fi_info* const made = fi_dupinfo(all);
    std::free(made->fabric_attr->prov_name);
    made->fabric_attr->prov_name = ::strdup(each->name);
    made->mode = each->mode & asked.mode;
    made->domain_attr->mr_mode = each->mr_mode & asked.domain_attr->mr_mode;
    require(made->mode == each->mode && made->domain_attr->mr_mode == each->mr_mode, "the caller cannot use the card");
    made->nic = card(*state != "down");
    made->next = answers;
    answers = made;
  }
  if (answers != all && name != nullptr) fi_freeinfo(all);
  *found = answers;
  return 0;
}

int fi_fabric(fi_fabric_attr* attributes, fid_fabric** made, void* context) {
  char* const name = attributes->prov_name;
  std::string real_provider = real_name;
  attributes->prov_name = real_provider.data();
  const int code = real(&fi_fabric, "fi_fabric")(attributes, made, context);
  attributes->prov_name = name;
  if (code != 0) return code;
  static fi_ops_fabric objects;
  replace((*made)->ops, objects, [](fi_ops_fabric& all) {
    real_domain = all.domain;
    all.domain = domain;
  });
  return code;
}

}  // extern "C"
