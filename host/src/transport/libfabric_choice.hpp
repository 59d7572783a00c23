/// \file libfabric_choice.hpp
/// What the transport asks of libfabric's providers, and what it makes of what they answer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

struct fi_info;

namespace devcomm::host::detail {

/// What a provider wants of memory, by its mode bits.
struct memory_rules {
  bool registers_messages = false;   ///< FI_MR_LOCAL: also of memory that only this process uses
  bool peers_use_addresses = false;  ///< FI_MR_VIRT_ADDR: else offsets from the start of a region
  bool chooses_keys = false;         ///< FI_MR_PROV_KEY: else this library does, at random
  bool reaches_devices = false;      ///< FI_HMEM: memory of devices can be registered
  bool is_the_endpoints = false;     ///< FI_MR_ENDPOINT: bound to an endpoint, and then enabled
};

/// Whether writes can tell the peer a number when they have arrived (remote completion data), of 32 bits at least.
[[nodiscard]] bool can_name_writes(const fi_info& found);

/// Fills in hints for `fi_getinfo`: messages, and writes that are complete when they have been delivered; with
/// `devices`, also of memory of devices; of the provider with this name, where it is not empty. Cards are looked for
/// among the answers: not every provider takes the name of one as a hint.
void ask_for_provider(fi_info& hints, const std::string& provider, bool devices);

/// Of a provider's answers, of which each may be a network card, the one to take for the PCI device at `device`, whose
/// place the system's files below `root` know: the nearest card. Where several are as near, the `turn`-th of them,
/// round and round, so that devices share them. The first answer where no card is known to be near.
[[nodiscard]] const fi_info& nearest_card(const fi_info& answers, std::uint64_t device, unsigned turn,
                                          const std::string& root = "/sys");

/// The first answer of the card that libfabric names so, or null.
[[nodiscard]] const fi_info* answer_of_card(const fi_info& answers, const std::string& card);
/// "lo, eth0": each once.
[[nodiscard]] std::string names_of_cards(const fi_info& answers);

/// Names of the providers in libfabric's answers that drive network cards by themselves and can be used, each once and
/// in the order of the answers, the best first; those of the card named `card` where that is not empty. `obstacle` is
/// why a card was passed over.
[[nodiscard]] std::vector<std::string> providers_of_cards(const fi_info* answers, const std::string& card,
                                                          std::string& obstacle);

/// Whether the provider moves data by threads of the host. From and to memory of devices these copy by calls that may
/// wait for kernels, which wait for the data.
[[nodiscard]] bool moves_by_threads(const std::string& provider);

/// Whether a write is complete when the peer's card has acknowledged it, although the provider says
/// `FI_DELIVERY_COMPLETE` (verbs;ofi_rxm, libfabric's issue 5601): its data may still be on its way to memory. It is
/// asked for messages that follow the data of writes begun before them (`FI_ORDER_SAW`).
[[nodiscard]] bool completes_on_acknowledgment(const std::string& provider);

[[nodiscard]] memory_rules memory_rules_of(const fi_info& found);

/// Whether each operation's context is memory that is the provider's until the operation is over (`FI_CONTEXT`,
/// `FI_CONTEXT2`), else any number.
[[nodiscard]] bool wants_contexts(const fi_info& found);

/// Why the provider cannot be used although it has what was asked for, and what to do; empty where it can.
[[nodiscard]] std::string why_unusable(const fi_info& found, const std::string& provider);

}  // namespace devcomm::host::detail
