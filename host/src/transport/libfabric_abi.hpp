/// \file libfabric_abi.hpp
/// The part of libfabric's binary interface, 1.17, that this library uses, with the names of its headers: so that it is
/// compiled without them, and loads any libfabric from 1.17 on. A structure has all of its members; of tables of
/// functions, those up to the last one that is called. tests/host/transport/libfabric_abi_test.cpp compares all with
/// the headers.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

// NOLINTBEGIN(readability-identifier-naming): libfabric's names

// Objects, of which only pointers are passed on.
struct fid_eq;
struct fid_pep;
struct fid_wait;
struct fid_domain;
struct fid_ep;
struct fid_av;
struct fid_cq;
struct fid_mr;
struct fid_fabric;

using fi_addr_t = std::uint64_t;
inline constexpr fi_addr_t FI_ADDR_UNSPEC = ~std::uint64_t{0};
inline constexpr std::uint64_t FI_KEY_NOTAVAIL = ~std::uint64_t{0};

// Versions, as one number.
constexpr std::uint32_t FI_VERSION(std::uint32_t major, std::uint32_t minor) { return major << 16 | minor; }
constexpr std::uint32_t FI_MAJOR(std::uint32_t version) { return version >> 16; }
constexpr std::uint32_t FI_MINOR(std::uint32_t version) { return version & 0xffff; }

// Capabilities, flags of operations and of completions.
inline constexpr std::uint64_t FI_MSG = 1ull << 1;
inline constexpr std::uint64_t FI_RMA = 1ull << 2;
inline constexpr std::uint64_t FI_READ = 1ull << 8;
inline constexpr std::uint64_t FI_WRITE = 1ull << 9;
inline constexpr std::uint64_t FI_RECV = 1ull << 10;
inline constexpr std::uint64_t FI_SEND = 1ull << 11;
inline constexpr std::uint64_t FI_TRANSMIT = FI_SEND;
inline constexpr std::uint64_t FI_REMOTE_READ = 1ull << 12;
inline constexpr std::uint64_t FI_REMOTE_WRITE = 1ull << 13;
inline constexpr std::uint64_t FI_REMOTE_CQ_DATA = 1ull << 17;
inline constexpr std::uint64_t FI_COMPLETION = 1ull << 24;
inline constexpr std::uint64_t FI_DELIVERY_COMPLETE = 1ull << 28;
inline constexpr std::uint64_t FI_HMEM = 1ull << 47;
inline constexpr std::uint64_t FI_SOURCE = 1ull << 57;

// What a provider wants of its caller: bits of `mode`, and of `mr_mode`.
inline constexpr std::uint64_t FI_CONTEXT = 1ull << 59;
inline constexpr std::uint64_t FI_MSG_PREFIX = 1ull << 58;
inline constexpr std::uint64_t FI_CONTEXT2 = 1ull << 52;
inline constexpr int FI_MR_LOCAL = 1 << 2;
inline constexpr int FI_MR_RAW = 1 << 3;
inline constexpr int FI_MR_VIRT_ADDR = 1 << 4;
inline constexpr int FI_MR_ALLOCATED = 1 << 5;
inline constexpr int FI_MR_PROV_KEY = 1 << 6;
inline constexpr int FI_MR_ENDPOINT = 1 << 9;
inline constexpr int FI_MR_HMEM = 1 << 10;

inline constexpr std::uint64_t FI_ORDER_NONE = 0;
inline constexpr std::uint64_t FI_ORDER_SAW = 1ull << 7;

inline constexpr int FI_EAGAIN = EAGAIN;
inline constexpr int FI_ENODATA = ENODATA;
inline constexpr int FI_ENODEV = ENODEV;
inline constexpr int FI_ENOPROTOOPT = ENOPROTOOPT;
inline constexpr int FI_ENOSYS = ENOSYS;
inline constexpr int FI_EAVAIL = 259;

inline constexpr int FI_ENABLE = 6;  // command of `fi_ops::control`
inline constexpr int FI_OPT_ENDPOINT = 0;
inline constexpr int FI_OPT_FI_HMEM_P2P = 8;
inline constexpr int FI_HMEM_P2P_REQUIRED = 1;

enum fi_av_type { FI_AV_UNSPEC, FI_AV_MAP, FI_AV_TABLE };
enum fi_progress { FI_PROGRESS_UNSPEC };
enum fi_threading { FI_THREAD_UNSPEC, FI_THREAD_DOMAIN = 3 };
enum fi_resource_mgmt { FI_RM_UNSPEC, FI_RM_ENABLED = 2 };
enum fi_ep_type { FI_EP_UNSPEC, FI_EP_RDM = 3 };
enum fi_bus_type { FI_BUS_UNKNOWN, FI_BUS_PCI };
enum fi_link_state { FI_LINK_UNKNOWN, FI_LINK_DOWN, FI_LINK_UP };
enum fi_hmem_iface { FI_HMEM_SYSTEM, FI_HMEM_CUDA };
enum fi_cq_format { FI_CQ_FORMAT_UNSPEC, FI_CQ_FORMAT_DATA = 3 };
enum fi_cq_wait_cond { FI_CQ_COND_NONE };
enum fi_wait_obj { FI_WAIT_NONE };

struct fid;

struct fi_ops {
  std::size_t size;
  int (*close)(fid*);
  int (*bind)(fid*, fid* to, std::uint64_t flags);
  int (*control)(fid*, int command, void* argument);
};

/// What all objects begin with.
struct fid {
  std::size_t fclass;
  void* context;
  fi_ops* ops;
};

struct fi_tx_attr {
  std::uint64_t caps;
  std::uint64_t mode;
  std::uint64_t op_flags;
  std::uint64_t msg_order;
  std::uint64_t comp_order;
  std::size_t inject_size;
  std::size_t size;
  std::size_t iov_limit;
  std::size_t rma_iov_limit;
  std::uint32_t tclass;
};

struct fi_rx_attr {
  std::uint64_t caps;
  std::uint64_t mode;
  std::uint64_t op_flags;
  std::uint64_t msg_order;
  std::uint64_t comp_order;
  std::size_t total_buffered_recv;
  std::size_t size;
  std::size_t iov_limit;
};

struct fi_ep_attr {
  fi_ep_type type;
  std::uint32_t protocol;
  std::uint32_t protocol_version;
  std::size_t max_msg_size;
  std::size_t msg_prefix_size;
  std::size_t max_order_raw_size;
  std::size_t max_order_war_size;
  std::size_t max_order_waw_size;
  std::uint64_t mem_tag_format;
  std::size_t tx_ctx_cnt;
  std::size_t rx_ctx_cnt;
  std::size_t auth_key_size;
  std::uint8_t* auth_key;
};

struct fi_domain_attr {
  fid_domain* domain;
  char* name;
  fi_threading threading;
  fi_progress control_progress;
  fi_progress data_progress;
  fi_resource_mgmt resource_mgmt;
  fi_av_type av_type;
  int mr_mode;
  std::size_t mr_key_size;
  std::size_t cq_data_size;
  std::size_t cq_cnt;
  std::size_t ep_cnt;
  std::size_t tx_ctx_cnt;
  std::size_t rx_ctx_cnt;
  std::size_t max_ep_tx_ctx;
  std::size_t max_ep_rx_ctx;
  std::size_t max_ep_stx_ctx;
  std::size_t max_ep_srx_ctx;
  std::size_t cntr_cnt;
  std::size_t mr_iov_limit;
  std::uint64_t caps;
  std::uint64_t mode;
  std::uint8_t* auth_key;
  std::size_t auth_key_size;
  std::size_t max_err_data;
  std::size_t mr_cnt;
  std::uint32_t tclass;
};

struct fi_fabric_attr {
  fid_fabric* fabric;
  char* name;
  char* prov_name;
  std::uint32_t prov_version;
  std::uint32_t api_version;
};

struct fi_device_attr;

struct fi_pci_attr {
  std::uint16_t domain_id;
  std::uint8_t bus_id;
  std::uint8_t device_id;
  std::uint8_t function_id;
};

struct fi_bus_attr {
  fi_bus_type bus_type;
  union {
    fi_pci_attr pci;
  } attr;
};

struct fi_link_attr {
  char* address;
  std::size_t mtu;
  std::size_t speed;
  fi_link_state state;
  char* network_type;
};

struct fid_nic {
  struct fid fid;
  fi_device_attr* device_attr;
  fi_bus_attr* bus_attr;
  fi_link_attr* link_attr;
  void* prov_attr;
};

struct fi_info {
  fi_info* next;
  std::uint64_t caps;
  std::uint64_t mode;
  std::uint32_t addr_format;
  std::size_t src_addrlen;
  std::size_t dest_addrlen;
  void* src_addr;
  void* dest_addr;
  fid* handle;
  fi_tx_attr* tx_attr;
  fi_rx_attr* rx_attr;
  fi_ep_attr* ep_attr;
  fi_domain_attr* domain_attr;
  fi_fabric_attr* fabric_attr;
  fid_nic* nic;
};

/// Memory of the provider's for each operation, of those that want it.
struct fi_context2 {
  void* internal[8];
};

struct fi_av_attr {
  fi_av_type type;
  int rx_ctx_bits;
  std::size_t count;
  std::size_t ep_per_node;
  const char* name;
  void* map_addr;
  std::uint64_t flags;
};

struct fi_mr_attr {
  const iovec* mr_iov;
  std::size_t iov_count;
  std::uint64_t access;
  std::uint64_t offset;
  std::uint64_t requested_key;
  void* context;
  std::size_t auth_key_size;
  std::uint8_t* auth_key;
  fi_hmem_iface iface;
  union {
    std::uint64_t reserved;
    int cuda;
  } device;
};

struct fi_cq_attr {
  std::size_t size;
  std::uint64_t flags;
  fi_cq_format format;
  fi_wait_obj wait_obj;
  int signaling_vector;
  fi_cq_wait_cond wait_cond;
  fid_wait* wait_set;
};

struct fi_cq_data_entry {
  void* op_context;
  std::uint64_t flags;
  std::size_t len;
  void* buf;
  std::uint64_t data;
};

struct fi_cq_err_entry {
  void* op_context;
  std::uint64_t flags;
  std::size_t len;
  void* buf;
  std::uint64_t data;
  std::uint64_t tag;
  std::size_t olen;
  int err;
  int prov_errno;
  void* err_data;
  std::size_t err_data_size;
};

struct fi_rma_iov {
  std::uint64_t addr;
  std::size_t len;
  std::uint64_t key;
};

struct fi_msg_rma {
  const iovec* msg_iov;
  void** desc;
  std::size_t iov_count;
  fi_addr_t addr;
  const fi_rma_iov* rma_iov;
  std::size_t rma_iov_count;
  void* context;
  std::uint64_t data;
};

// Objects and their functions. `unused` are functions that this library does not call.

struct fi_ops_fabric {
  std::size_t size;
  int (*domain)(fid_fabric*, fi_info*, fid_domain**, void* context);
};
struct fid_fabric {
  struct fid fid;
  fi_ops_fabric* ops;
  std::uint32_t api_version;
};

struct fi_ops_domain {
  std::size_t size;
  int (*av_open)(fid_domain*, fi_av_attr*, fid_av**, void* context);
  int (*cq_open)(fid_domain*, fi_cq_attr*, fid_cq**, void* context);
  int (*endpoint)(fid_domain*, fi_info*, fid_ep**, void* context);
};
struct fi_ops_mr {
  std::size_t size;
  void* unused[2];
  int (*regattr)(fid*, const fi_mr_attr*, std::uint64_t flags, fid_mr**);
};
struct fid_domain {
  struct fid fid;
  fi_ops_domain* ops;
  fi_ops_mr* mr;
};

struct fi_ops_av {
  std::size_t size;
  int (*insert)(fid_av*, const void* addresses, std::size_t count, fi_addr_t*, std::uint64_t flags, void* context);
};
struct fid_av {
  struct fid fid;
  fi_ops_av* ops;
};

struct fid_mr {
  struct fid fid;
  void* mem_desc;
  std::uint64_t key;
};

struct fi_ops_cq {
  std::size_t size;
  ssize_t (*read)(fid_cq*, void* entries, std::size_t count);
  void* unused[1];
  ssize_t (*readerr)(fid_cq*, fi_cq_err_entry*, std::uint64_t flags);
};
struct fid_cq {
  struct fid fid;
  fi_ops_cq* ops;
};

struct fi_ops_ep {
  std::size_t size;
  void* unused[2];
  int (*setopt)(fid*, int level, int option, const void* value, std::size_t bytes);
};
struct fi_ops_cm {
  std::size_t size;
  int (*setname)(fid*, void* address, std::size_t bytes);
  int (*getname)(fid*, void* address, std::size_t* bytes);
};
struct fi_ops_msg {
  std::size_t size;
  ssize_t (*recv)(fid_ep*, void* buffer, std::size_t bytes, void* descriptor, fi_addr_t from, void* context);
  void* unused[2];
  ssize_t (*send)(fid_ep*, const void* buffer, std::size_t bytes, void* descriptor, fi_addr_t to, void* context);
};
struct fi_ops_rma {
  std::size_t size;
  void* unused_reads[2];
  ssize_t (*readmsg)(fid_ep*, const fi_msg_rma*, std::uint64_t flags);
  void* unused_writes[2];
  ssize_t (*writemsg)(fid_ep*, const fi_msg_rma*, std::uint64_t flags);
};
struct fid_ep {
  struct fid fid;
  fi_ops_ep* ops;
  fi_ops_cm* cm;
  fi_ops_msg* msg;
  fi_ops_rma* rma;
  void* unused[3];
};

// NOLINTEND(readability-identifier-naming)
