// A libfabric.so.1 before the real one, for tests of cards that reach GPU memory: its provider "verbs;ofi_rxm" is
// tcp;ofi_rxm with FI_HMEM. Memory of the stand-in's devices is the host's, so the real provider moves what it is
// given.
#include <dlfcn.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

constexpr const char* name_of_cards = "verbs;ofi_rxm";
constexpr const char* real_name = "tcp;ofi_rxm";

bool is(const char* mode) {
  const char* const chosen = std::getenv("STAND_IN_HMEM");
  return chosen != nullptr && std::strcmp(chosen, mode) == 0;
}

template <class Function>
Function* real(Function*, const char* name) {
  static void* const library = ::dlopen(STAND_IN_REAL_LIBFABRIC, RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Function*>(::dlsym(library, name));
}

std::atomic<int> registered = 0;

/// While it lives, the real provider's view of `info`.
class as_real {
 public:
  explicit as_real(fi_info& info)
      : info_(info), capabilities_(info.caps), modes_(info.domain_attr->mr_mode), name_(info.fabric_attr->prov_name) {
    info_.caps &= ~FI_HMEM;
    info_.domain_attr->mr_mode &= ~FI_MR_HMEM;
    if (name_ != nullptr && std::strcmp(name_, name_of_cards) == 0) info_.fabric_attr->prov_name = real_.data();
  }
  ~as_real() {
    info_.caps = capabilities_;
    info_.domain_attr->mr_mode = modes_;
    info_.fabric_attr->prov_name = name_;
  }
  as_real(const as_real&) = delete;
  as_real& operator=(const as_real&) = delete;

 private:
  fi_info& info_;
  std::uint64_t capabilities_;
  int modes_;
  char* name_;
  std::string real_ = real_name;
};

// Functions of the real objects, in whose place are those below.
decltype(fi_ops_fabric::domain) real_domain;
decltype(fi_ops_domain::endpoint) real_endpoint;
decltype(fi_ops_ep::setopt) real_setopt;
decltype(fi_ops_mr::regattr) real_regattr;

int regattr(fid* domain, const fi_mr_attr* asked, std::uint64_t flags, fid_mr** made) {
  fi_mr_attr plain = *asked;
  if (plain.iface == FI_HMEM_CUDA) {
    if (is("refused")) return -FI_EOPNOTSUPP;
    ++registered;
    plain.iface = FI_HMEM_SYSTEM;
    plain.device.reserved = 0;
  }
  return real_regattr(domain, &plain, flags, made);
}

int setopt(fid* endpoint, int level, int option, const void* value, std::size_t bytes) {
  if (option == FI_OPT_FI_HMEM_P2P) return is("by_threads") ? -FI_EOPNOTSUPP : 0;
  return real_setopt(endpoint, level, option, value, bytes);
}

int endpoint(fid_domain* domain, fi_info* info, fid_ep** made, void* context) {
  const as_real view(*info);
  const int code = real_endpoint(domain, info, made, context);
  if (code != 0) return code;
  static fi_ops_ep ops;
  ops = *(*made)->ops;
  real_setopt = ops.setopt;
  ops.setopt = setopt;
  (*made)->ops = &ops;
  return code;
}

int domain(fid_fabric* fabric, fi_info* info, fid_domain** made, void* context) {
  const as_real view(*info);
  const int code = real_domain(fabric, info, made, context);
  if (code != 0) return code;
  static fi_ops_domain ops;
  ops = *(*made)->ops;
  real_endpoint = ops.endpoint;
  ops.endpoint = endpoint;
  (*made)->ops = &ops;
  static fi_ops_mr memory;
  memory = *(*made)->mr;
  real_regattr = memory.regattr;
  memory.regattr = regattr;
  (*made)->mr = &memory;
  return code;
}

}  // namespace

extern "C" {

int fi_getinfo(std::uint32_t version, const char* node, const char* service, std::uint64_t flags, const fi_info* hints,
               fi_info** found) {
  const auto ask = real(&fi_getinfo, "fi_getinfo");
  fi_info& asked = const_cast<fi_info&>(*hints);
  const bool devices = (asked.caps & FI_HMEM) != 0;
  if (devices && is("none")) return -FI_ENODATA;
  const as_real view(asked);
  const int code = ask(version, node, service, flags, &asked, found);
  if (code == 0 && devices) {
    for (fi_info* each = *found; each != nullptr; each = each->next) {
      each->caps |= FI_HMEM;
      each->domain_attr->mr_mode |= FI_MR_HMEM;
    }
  }
  return code;
}

void fi_freeinfo(fi_info* info) { real(&fi_freeinfo, "fi_freeinfo")(info); }
fi_info* fi_dupinfo(const fi_info* info) { return real(&fi_dupinfo, "fi_dupinfo")(info); }
const char* fi_strerror(int code) { return real(&fi_strerror, "fi_strerror")(code); }
std::uint32_t fi_version() { return real(&fi_version, "fi_version")(); }

int fi_fabric(fi_fabric_attr* attributes, fid_fabric** made, void* context) {
  const int code = real(&fi_fabric, "fi_fabric")(attributes, made, context);
  if (code != 0) return code;
  static fi_ops_fabric ops;
  ops = *(*made)->ops;
  real_domain = ops.domain;
  ops.domain = domain;
  (*made)->ops = &ops;
  return code;
}

/// Regions of device memory so far.
int stand_in_registered_devices() { return registered; }

}  // extern "C"
