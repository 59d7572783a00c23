// The interface that libfabric_abi.hpp declares, beside that of libfabric's own headers: values, places and sizes.
#include <transport/libfabric_abi.hpp>

// What libfabric's headers include, so that only they are inside of the namespace.
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <cstddef>

// Expanded here, where a name is that of libfabric_abi.hpp, and below, where it is that of the headers.
// clang-format off
#define EACH_CONSTANT(action) \
  action(FI_ADDR_UNSPEC) action(FI_KEY_NOTAVAIL) action(FI_MSG) action(FI_RMA) action(FI_READ) action(FI_WRITE) \
  action(FI_RECV) action(FI_SEND) action(FI_TRANSMIT) action(FI_REMOTE_READ) action(FI_REMOTE_WRITE) \
  action(FI_REMOTE_CQ_DATA) action(FI_COMPLETION) action(FI_DELIVERY_COMPLETE) action(FI_HMEM) action(FI_SOURCE) \
  action(FI_CONTEXT) action(FI_MSG_PREFIX) action(FI_CONTEXT2) action(FI_MR_LOCAL) action(FI_MR_RAW) \
  action(FI_MR_VIRT_ADDR) action(FI_MR_ALLOCATED) action(FI_MR_PROV_KEY) action(FI_MR_ENDPOINT) action(FI_MR_HMEM) \
  action(FI_ORDER_NONE) action(FI_ORDER_SAW) action(FI_EAGAIN) action(FI_ENODATA) action(FI_ENODEV) \
  action(FI_ENOPROTOOPT) action(FI_ENOSYS) action(FI_EAVAIL) action(FI_ENABLE) action(FI_OPT_ENDPOINT) \
  action(FI_OPT_FI_HMEM_P2P) action(FI_HMEM_P2P_REQUIRED) action(FI_AV_UNSPEC) action(FI_AV_MAP) action(FI_AV_TABLE) \
  action(FI_PROGRESS_UNSPEC) action(FI_THREAD_UNSPEC) action(FI_THREAD_DOMAIN) action(FI_RM_UNSPEC) \
  action(FI_RM_ENABLED) action(FI_EP_UNSPEC) action(FI_EP_RDM) action(FI_BUS_UNKNOWN) action(FI_BUS_PCI) \
  action(FI_LINK_UNKNOWN) action(FI_LINK_DOWN) action(FI_LINK_UP) action(FI_HMEM_SYSTEM) action(FI_HMEM_CUDA) \
  action(FI_CQ_FORMAT_UNSPEC) action(FI_CQ_FORMAT_DATA) action(FI_CQ_COND_NONE) action(FI_WAIT_NONE)
// clang-format on
#define VALUE(name) static_cast<unsigned long long>(name),
#define NAME(name) #name,

namespace {

constexpr unsigned long long declared[] = {EACH_CONSTANT(VALUE)};
constexpr const char* names[] = {EACH_CONSTANT(NAME)};
constexpr unsigned declared_version = FI_VERSION(1, 17);

}  // namespace

namespace original {
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

namespace {
constexpr unsigned long long values[] = {EACH_CONSTANT(VALUE)};
constexpr unsigned version = FI_VERSION(1, 17);
}  // namespace
}  // namespace original

#define SAME_PLACE(type, member) static_assert(offsetof(::type, member) == offsetof(original::type, member))
#define SAME_SIZE(type) static_assert(sizeof(::type) == sizeof(original::type))

SAME_PLACE(fi_ops, size);
SAME_PLACE(fi_ops, close);
SAME_PLACE(fi_ops, bind);
SAME_PLACE(fi_ops, control);
SAME_PLACE(fid, fclass);
SAME_PLACE(fid, context);
SAME_PLACE(fid, ops);
SAME_SIZE(fid);
SAME_PLACE(fi_tx_attr, caps);
SAME_PLACE(fi_tx_attr, mode);
SAME_PLACE(fi_tx_attr, op_flags);
SAME_PLACE(fi_tx_attr, msg_order);
SAME_PLACE(fi_tx_attr, comp_order);
SAME_PLACE(fi_tx_attr, inject_size);
SAME_PLACE(fi_tx_attr, size);
SAME_PLACE(fi_tx_attr, iov_limit);
SAME_PLACE(fi_tx_attr, rma_iov_limit);
SAME_PLACE(fi_tx_attr, tclass);
SAME_SIZE(fi_tx_attr);
SAME_PLACE(fi_rx_attr, caps);
SAME_PLACE(fi_rx_attr, mode);
SAME_PLACE(fi_rx_attr, op_flags);
SAME_PLACE(fi_rx_attr, msg_order);
SAME_PLACE(fi_rx_attr, comp_order);
SAME_PLACE(fi_rx_attr, total_buffered_recv);
SAME_PLACE(fi_rx_attr, size);
SAME_PLACE(fi_rx_attr, iov_limit);
SAME_SIZE(fi_rx_attr);
SAME_PLACE(fi_ep_attr, type);
SAME_PLACE(fi_ep_attr, protocol);
SAME_PLACE(fi_ep_attr, protocol_version);
SAME_PLACE(fi_ep_attr, max_msg_size);
SAME_PLACE(fi_ep_attr, msg_prefix_size);
SAME_PLACE(fi_ep_attr, max_order_raw_size);
SAME_PLACE(fi_ep_attr, max_order_war_size);
SAME_PLACE(fi_ep_attr, max_order_waw_size);
SAME_PLACE(fi_ep_attr, mem_tag_format);
SAME_PLACE(fi_ep_attr, tx_ctx_cnt);
SAME_PLACE(fi_ep_attr, rx_ctx_cnt);
SAME_PLACE(fi_ep_attr, auth_key_size);
SAME_PLACE(fi_ep_attr, auth_key);
SAME_SIZE(fi_ep_attr);
SAME_PLACE(fi_domain_attr, domain);
SAME_PLACE(fi_domain_attr, name);
SAME_PLACE(fi_domain_attr, threading);
SAME_PLACE(fi_domain_attr, control_progress);
SAME_PLACE(fi_domain_attr, data_progress);
SAME_PLACE(fi_domain_attr, resource_mgmt);
SAME_PLACE(fi_domain_attr, av_type);
SAME_PLACE(fi_domain_attr, mr_mode);
SAME_PLACE(fi_domain_attr, mr_key_size);
SAME_PLACE(fi_domain_attr, cq_data_size);
SAME_PLACE(fi_domain_attr, cq_cnt);
SAME_PLACE(fi_domain_attr, ep_cnt);
SAME_PLACE(fi_domain_attr, tx_ctx_cnt);
SAME_PLACE(fi_domain_attr, rx_ctx_cnt);
SAME_PLACE(fi_domain_attr, max_ep_tx_ctx);
SAME_PLACE(fi_domain_attr, max_ep_rx_ctx);
SAME_PLACE(fi_domain_attr, max_ep_stx_ctx);
SAME_PLACE(fi_domain_attr, max_ep_srx_ctx);
SAME_PLACE(fi_domain_attr, cntr_cnt);
SAME_PLACE(fi_domain_attr, mr_iov_limit);
SAME_PLACE(fi_domain_attr, caps);
SAME_PLACE(fi_domain_attr, mode);
SAME_PLACE(fi_domain_attr, auth_key);
SAME_PLACE(fi_domain_attr, auth_key_size);
SAME_PLACE(fi_domain_attr, max_err_data);
SAME_PLACE(fi_domain_attr, mr_cnt);
SAME_PLACE(fi_domain_attr, tclass);
SAME_SIZE(fi_domain_attr);
SAME_PLACE(fi_fabric_attr, fabric);
SAME_PLACE(fi_fabric_attr, name);
SAME_PLACE(fi_fabric_attr, prov_name);
SAME_PLACE(fi_fabric_attr, prov_version);
SAME_PLACE(fi_fabric_attr, api_version);
SAME_SIZE(fi_fabric_attr);
SAME_PLACE(fi_pci_attr, domain_id);
SAME_PLACE(fi_pci_attr, bus_id);
SAME_PLACE(fi_pci_attr, device_id);
SAME_PLACE(fi_pci_attr, function_id);
SAME_SIZE(fi_pci_attr);
SAME_PLACE(fi_bus_attr, bus_type);
SAME_PLACE(fi_bus_attr, attr);
SAME_SIZE(fi_bus_attr);
SAME_PLACE(fi_link_attr, address);
SAME_PLACE(fi_link_attr, mtu);
SAME_PLACE(fi_link_attr, speed);
SAME_PLACE(fi_link_attr, state);
SAME_PLACE(fi_link_attr, network_type);
SAME_SIZE(fi_link_attr);
SAME_PLACE(fid_nic, fid);
SAME_PLACE(fid_nic, device_attr);
SAME_PLACE(fid_nic, bus_attr);
SAME_PLACE(fid_nic, link_attr);
SAME_PLACE(fid_nic, prov_attr);
SAME_SIZE(fid_nic);
SAME_PLACE(fi_info, next);
SAME_PLACE(fi_info, caps);
SAME_PLACE(fi_info, mode);
SAME_PLACE(fi_info, addr_format);
SAME_PLACE(fi_info, src_addrlen);
SAME_PLACE(fi_info, dest_addrlen);
SAME_PLACE(fi_info, src_addr);
SAME_PLACE(fi_info, dest_addr);
SAME_PLACE(fi_info, handle);
SAME_PLACE(fi_info, tx_attr);
SAME_PLACE(fi_info, rx_attr);
SAME_PLACE(fi_info, ep_attr);
SAME_PLACE(fi_info, domain_attr);
SAME_PLACE(fi_info, fabric_attr);
SAME_PLACE(fi_info, nic);
SAME_SIZE(fi_info);
SAME_PLACE(fi_context2, internal);
SAME_SIZE(fi_context2);
SAME_PLACE(fi_av_attr, type);
SAME_PLACE(fi_av_attr, rx_ctx_bits);
SAME_PLACE(fi_av_attr, count);
SAME_PLACE(fi_av_attr, ep_per_node);
SAME_PLACE(fi_av_attr, name);
SAME_PLACE(fi_av_attr, map_addr);
SAME_PLACE(fi_av_attr, flags);
SAME_SIZE(fi_av_attr);
SAME_PLACE(fi_mr_attr, mr_iov);
SAME_PLACE(fi_mr_attr, iov_count);
SAME_PLACE(fi_mr_attr, access);
SAME_PLACE(fi_mr_attr, offset);
SAME_PLACE(fi_mr_attr, requested_key);
SAME_PLACE(fi_mr_attr, context);
SAME_PLACE(fi_mr_attr, auth_key_size);
SAME_PLACE(fi_mr_attr, auth_key);
SAME_PLACE(fi_mr_attr, iface);
SAME_PLACE(fi_mr_attr, device);
SAME_SIZE(fi_mr_attr);
SAME_PLACE(fi_cq_attr, size);
SAME_PLACE(fi_cq_attr, flags);
SAME_PLACE(fi_cq_attr, format);
SAME_PLACE(fi_cq_attr, wait_obj);
SAME_PLACE(fi_cq_attr, signaling_vector);
SAME_PLACE(fi_cq_attr, wait_cond);
SAME_PLACE(fi_cq_attr, wait_set);
SAME_SIZE(fi_cq_attr);
SAME_PLACE(fi_cq_data_entry, op_context);
SAME_PLACE(fi_cq_data_entry, flags);
SAME_PLACE(fi_cq_data_entry, len);
SAME_PLACE(fi_cq_data_entry, buf);
SAME_PLACE(fi_cq_data_entry, data);
SAME_SIZE(fi_cq_data_entry);
SAME_PLACE(fi_cq_err_entry, op_context);
SAME_PLACE(fi_cq_err_entry, flags);
SAME_PLACE(fi_cq_err_entry, len);
SAME_PLACE(fi_cq_err_entry, buf);
SAME_PLACE(fi_cq_err_entry, data);
SAME_PLACE(fi_cq_err_entry, tag);
SAME_PLACE(fi_cq_err_entry, olen);
SAME_PLACE(fi_cq_err_entry, err);
SAME_PLACE(fi_cq_err_entry, prov_errno);
SAME_PLACE(fi_cq_err_entry, err_data);
SAME_PLACE(fi_cq_err_entry, err_data_size);
SAME_SIZE(fi_cq_err_entry);
SAME_PLACE(fi_rma_iov, addr);
SAME_PLACE(fi_rma_iov, len);
SAME_PLACE(fi_rma_iov, key);
SAME_SIZE(fi_rma_iov);
SAME_PLACE(fi_msg_rma, msg_iov);
SAME_PLACE(fi_msg_rma, desc);
SAME_PLACE(fi_msg_rma, iov_count);
SAME_PLACE(fi_msg_rma, addr);
SAME_PLACE(fi_msg_rma, rma_iov);
SAME_PLACE(fi_msg_rma, rma_iov_count);
SAME_PLACE(fi_msg_rma, context);
SAME_PLACE(fi_msg_rma, data);
SAME_SIZE(fi_msg_rma);
SAME_PLACE(fi_ops_fabric, size);
SAME_PLACE(fi_ops_fabric, domain);
SAME_PLACE(fid_fabric, fid);
SAME_PLACE(fid_fabric, ops);
SAME_PLACE(fid_fabric, api_version);
SAME_SIZE(fid_fabric);
SAME_PLACE(fi_ops_domain, size);
SAME_PLACE(fi_ops_domain, av_open);
SAME_PLACE(fi_ops_domain, cq_open);
SAME_PLACE(fi_ops_domain, endpoint);
SAME_PLACE(fi_ops_mr, size);
SAME_PLACE(fi_ops_mr, regattr);
SAME_PLACE(fid_domain, fid);
SAME_PLACE(fid_domain, ops);
SAME_PLACE(fid_domain, mr);
SAME_SIZE(fid_domain);
SAME_PLACE(fi_ops_av, size);
SAME_PLACE(fi_ops_av, insert);
SAME_PLACE(fid_av, fid);
SAME_PLACE(fid_av, ops);
SAME_SIZE(fid_av);
SAME_PLACE(fid_mr, fid);
SAME_PLACE(fid_mr, mem_desc);
SAME_PLACE(fid_mr, key);
SAME_SIZE(fid_mr);
SAME_PLACE(fi_ops_cq, size);
SAME_PLACE(fi_ops_cq, read);
SAME_PLACE(fi_ops_cq, readerr);
SAME_PLACE(fid_cq, fid);
SAME_PLACE(fid_cq, ops);
SAME_SIZE(fid_cq);
SAME_PLACE(fi_ops_ep, size);
SAME_PLACE(fi_ops_ep, setopt);
SAME_PLACE(fi_ops_cm, size);
SAME_PLACE(fi_ops_cm, setname);
SAME_PLACE(fi_ops_cm, getname);
SAME_PLACE(fi_ops_msg, size);
SAME_PLACE(fi_ops_msg, recv);
SAME_PLACE(fi_ops_msg, send);
SAME_PLACE(fi_ops_rma, size);
SAME_PLACE(fi_ops_rma, readmsg);
SAME_PLACE(fi_ops_rma, writemsg);
SAME_PLACE(fid_ep, fid);
SAME_PLACE(fid_ep, ops);
SAME_PLACE(fid_ep, cm);
SAME_PLACE(fid_ep, msg);
SAME_PLACE(fid_ep, rma);
SAME_SIZE(fid_ep);

TEST_CASE("libfabric's values are those of its headers") {
  CHECK(declared_version == original::version);
  for (std::size_t i = 0; i < std::size(declared); ++i) {
    CAPTURE(names[i]);
    CHECK(declared[i] == original::values[i]);
  }
}
