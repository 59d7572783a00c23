#include "transport/libfabric_choice.hpp"

#include "transport/fabric_endpoint.hpp"
#include "transport/libfabric_abi.hpp"
#include "util/pci_place.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <set>
#include <vector>

namespace devcomm::host::detail {
namespace {

constexpr int known_modes =
    FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT | FI_MR_HMEM;
constexpr std::uint64_t context_modes = FI_CONTEXT | FI_CONTEXT2;

/// libfabric's name of its domain.
std::string name_of_card(const fi_info& answer) {
  return answer.domain_attr->name == nullptr ? "" : answer.domain_attr->name;
}

/// "verbs" of "verbs;ofi_rxm".
std::string core_of(const std::string& provider) { return provider.substr(0, provider.find(';')); }

}  // namespace

void ask_for_provider(fi_info& hints, const std::string& provider, bool devices) {
  hints.caps = FI_MSG | FI_RMA | (devices ? FI_HMEM : 0);
  hints.mode = context_modes;
  hints.ep_attr->type = FI_EP_RDM;
  // A provider answers with those that it needs. All windows have their memory from the start, as FI_MR_ALLOCATED asks.
  hints.domain_attr->mr_mode = devices ? known_modes : known_modes & ~FI_MR_HMEM;
  hints.domain_attr->threading = FI_THREAD_DOMAIN;
  hints.domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints.domain_attr->av_type = FI_AV_TABLE;
  hints.tx_attr->op_flags = FI_DELIVERY_COMPLETE;
  if (completes_on_acknowledgment(provider)) hints.tx_attr->msg_order = hints.rx_attr->msg_order = FI_ORDER_SAW;
  if (!provider.empty()) hints.fabric_attr->prov_name = ::strdup(provider.c_str());
}

bool completes_on_acknowledgment(const std::string& provider) { return core_of(provider) == "verbs"; }

memory_rules memory_rules_of(const fi_info& found) {
  const int modes = found.domain_attr->mr_mode;
  return {(modes & FI_MR_LOCAL) != 0, (modes & FI_MR_VIRT_ADDR) != 0, (modes & FI_MR_PROV_KEY) != 0,
          (found.caps & FI_HMEM) != 0, (modes & FI_MR_ENDPOINT) != 0};
}

bool wants_contexts(const fi_info& found) { return (found.mode & context_modes) != 0; }

bool can_name_writes(const fi_info& found) { return found.domain_attr->cq_data_size >= sizeof(std::uint32_t); }

const fi_info& nearest_card(const fi_info& answers, std::uint64_t device, unsigned turn, const std::string& root) {
  std::vector<const fi_info*> nearest;
  std::optional<std::size_t> least;
  std::set<std::string> named;  // providers answer several times of a card
  for (const fi_info* each = &answers; each != nullptr; each = each->next) {
    if (each->nic == nullptr || each->nic->bus_attr == nullptr || each->nic->bus_attr->bus_type != FI_BUS_PCI) continue;
    const fi_pci_attr& at = each->nic->bus_attr->attr.pci;
    const std::uint64_t place = std::uint64_t{at.domain_id} << 32 | std::uint64_t{at.bus_id} << 8 | at.device_id;
    const auto distance = pci_distance(device, place, root);
    if (!distance || (least && *distance > *least)) continue;
    if (!least || *distance < *least) {
      nearest.clear();
      named.clear();
    }
    least = distance;
    if (named.insert(name_of_card(*each)).second) nearest.push_back(each);
  }
  return nearest.empty() ? answers : *nearest[turn % nearest.size()];
}

const fi_info* answer_of_card(const fi_info& answers, const std::string& card) {
  const fi_info* each = &answers;
  while (each != nullptr && name_of_card(*each) != card) each = each->next;
  return each;
}

std::string names_of_cards(const fi_info& answers) {
  std::string all;
  std::set<std::string> named;
  for (const fi_info* each = &answers; each != nullptr; each = each->next) {
    if (!named.insert(name_of_card(*each)).second) continue;
    all += (all.empty() ? "" : ", ") + name_of_card(*each);
  }
  return all;
}

std::vector<std::string> providers_of_cards(const fi_info* answers, const std::string& card, std::string& obstacle) {
  std::vector<std::string> found;
  for (const fi_info* each = answers; each != nullptr; each = each->next) {
    if (each->nic == nullptr || each->nic->bus_attr == nullptr || each->nic->bus_attr->bus_type != FI_BUS_PCI) continue;
    if (!card.empty() && name_of_card(*each) != card) continue;
    const std::string name = each->fabric_attr->prov_name == nullptr ? "" : each->fabric_attr->prov_name;
    if (moves_by_threads(name) || std::find(found.begin(), found.end(), name) != found.end()) continue;
    if (each->nic->link_attr != nullptr && each->nic->link_attr->state == FI_LINK_DOWN) {
      obstacle = "the link of " + name_of_card(*each) + " is down";
    } else if (const std::string why = why_unusable(*each, name); !why.empty()) {
      obstacle = why;
    } else {
      found.push_back(name);
    }
  }
  return found;
}

bool moves_by_threads(const std::string& provider) {
  constexpr std::array names{"tcp", "net", "udp", "sockets", "shm", "sm2"};
  return std::find(names.begin(), names.end(), core_of(provider)) != names.end();
}

std::string why_unusable(const fi_info& found, const std::string& provider) {
  const auto refusal = [&](const std::string& why) {
    return "libfabric's provider \"" + provider + "\" cannot be used: " + why +
           "; set DEVCOMM_GIN_PROVIDER to another one, such as tcp;ofi_rxm";
  };
  if (const std::uint64_t modes = found.mode & ~context_modes; modes != 0) {
    return refusal("it wants mode bits " + std::to_string(modes) + " of its caller, which does not have them");
  }
  const int unknown = found.domain_attr->mr_mode & ~known_modes;
  if (unknown != 0) {
    return refusal("it wants memory registered in ways that are not supported (mr_mode bits " +
                   std::to_string(unknown) + ")");
  }
  const std::size_t key_bytes = found.domain_attr->mr_key_size;
  if (key_bytes > sizeof(std::uint64_t)) {
    return refusal("its keys of memory have " + std::to_string(key_bytes) + " bytes, and there is room for 8");
  }
  if (key_bytes < sizeof(std::uint64_t) && !memory_rules_of(found).chooses_keys) {
    return refusal("the keys of memory that it takes have " + std::to_string(key_bytes) +
                   " bytes, and strangers could guess keys of less than 8");
  }
  constexpr std::size_t message_bytes = sizeof(fabric_message);
  if (found.ep_attr->max_msg_size < message_bytes) {
    return refusal("its messages have at most " + std::to_string(found.ep_attr->max_msg_size) + " bytes, and " +
                   std::to_string(message_bytes) + " are needed");
  }
  if (found.rx_attr->size < fabric_endpoint::receive_buffers) {
    return refusal("it receives at most " + std::to_string(found.rx_attr->size) + " messages at a time, and " +
                   std::to_string(fabric_endpoint::receive_buffers) + " are needed");
  }
  return {};
}

}  // namespace devcomm::host::detail
