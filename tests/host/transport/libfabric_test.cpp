// What the transport makes of what providers of libfabric want and offer, of strangers, and of a library that is too
// old.
#include <devcomm/host/bootstrap.hpp>
#include <devcomm/host/error.hpp>

#include <device/backend.hpp>
#include <rank/agreement.hpp>
#include <transport/exchange_cards.hpp>
#include <transport/fabric_engine.hpp>
#include <transport/fabric_thread.hpp>
#include <transport/libfabric.hpp>
#include <transport/libfabric_abi.hpp>
#include <transport/libfabric_choice.hpp>

#include "../../support/post_descriptor.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

namespace host = devcomm::host;
using namespace std::chrono_literals;
using namespace devcomm::host::detail;
using Catch::Matchers::ContainsSubstring;

namespace {

/// What a provider answers, without the library that makes it.
struct answer {
  answer(int modes, std::size_t key_bytes) {
    info.ep_attr = &endpoint;
    info.rx_attr = &receive;
    info.tx_attr = &transmit;
    info.domain_attr = &domain;
    info.fabric_attr = &fabric;
    domain.mr_mode = modes;
    domain.mr_key_size = key_bytes;
    endpoint.max_msg_size = std::size_t{1} << 30;
    receive.size = 384;
  }
  answer(const answer&) = delete;
  answer& operator=(const answer&) = delete;

  [[nodiscard]] std::string problem() const { return why_unusable(info, "p"); }

  fi_info info{};
  fi_ep_attr endpoint{};
  fi_rx_attr receive{};
  fi_tx_attr transmit{};
  fi_domain_attr domain{};
  fi_fabric_attr fabric{};
};

/// The answer of a provider for a network card on a PCI bus.
struct card {
  explicit card(const char* name, std::uint8_t bus) : what(0, 8) {
    what.domain.name = const_cast<char*>(name);
    what.info.nic = &nic;
    nic.bus_attr = &bus_attributes;
    nic.link_attr = &link;
    link.state = FI_LINK_UP;
    bus_attributes.bus_type = FI_BUS_PCI;
    bus_attributes.attr.pci = {0, bus, 0, 0};
  }
  answer what;
  fid_nic nic{};
  fi_bus_attr bus_attributes{};
  fi_link_attr link{};
};

endpoint_wish over_loopback(std::size_t peers) {
  endpoint_wish wish;
  wish.provider = "tcp;ofi_rxm";
  wish.address = "127.0.0.1";
  wish.peers = peers;
  return wish;
}

constexpr int by_peers_addresses = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;

}  // namespace

TEST_CASE("what providers want of memory follows from their mode bits") {
  const answer tcp(0, 8);
  CHECK(tcp.problem().empty());
  CHECK(!memory_rules_of(tcp.info).registers_messages);
  CHECK(!memory_rules_of(tcp.info).peers_use_addresses);
  CHECK(!memory_rules_of(tcp.info).chooses_keys);
  const answer verbs(FI_MR_LOCAL | by_peers_addresses, 4);
  CHECK(verbs.problem().empty());
  CHECK(memory_rules_of(verbs.info).registers_messages);
  CHECK(memory_rules_of(verbs.info).peers_use_addresses);
  CHECK(memory_rules_of(verbs.info).chooses_keys);
  const answer efa_without_local(by_peers_addresses, 4);
  CHECK(efa_without_local.problem().empty());
  CHECK(!memory_rules_of(efa_without_local.info).registers_messages);
  CHECK(memory_rules_of(efa_without_local.info).peers_use_addresses);
  CHECK(!memory_rules_of(efa_without_local.info).is_the_endpoints);
  answer cxi(FI_MR_ENDPOINT | FI_MR_ALLOCATED, 8);
  CHECK(memory_rules_of(cxi.info).is_the_endpoints);
  CHECK(!wants_contexts(cxi.info));
  for (const std::uint64_t mode : {FI_CONTEXT, FI_CONTEXT2}) {
    cxi.info.mode = mode;
    CHECK(wants_contexts(cxi.info));
    CHECK(cxi.problem().empty());
  }
}

TEST_CASE("a provider is asked for all ways of memory that are known, and may want contexts of its caller") {
  answer hints(0, 0);
  for (const bool devices : {false, true}) {
    ask_for_provider(hints.info, "verbs;ofi_rxm", devices);
    CHECK(hints.domain.mr_mode == (FI_MR_LOCAL | by_peers_addresses | FI_MR_ENDPOINT | (devices ? FI_MR_HMEM : 0)));
    CHECK(((hints.info.caps & FI_HMEM) != 0) == devices);
    CHECK(hints.info.mode == (FI_CONTEXT | FI_CONTEXT2));
    CHECK(std::string(hints.fabric.prov_name) == "verbs;ofi_rxm");
    std::free(hints.fabric.prov_name);
    CHECK(hints.domain.name == nullptr);
  }
}

TEST_CASE("where writes are complete with the card's acknowledgment, messages are asked to follow their data") {
  answer hints(0, 0);
  for (const char* const provider : {"verbs;ofi_rxm", "efa", "cxi", "tcp;ofi_rxm", ""}) {
    hints.transmit.msg_order = hints.receive.msg_order = 0;
    ask_for_provider(hints.info, provider, false);
    std::free(hints.fabric.prov_name);
    hints.fabric.prov_name = nullptr;
    const std::uint64_t order = std::string(provider) == "verbs;ofi_rxm" ? FI_ORDER_SAW : FI_ORDER_NONE;
    CHECK(hints.transmit.msg_order == order);
    CHECK(hints.receive.msg_order == order);
    CHECK(hints.transmit.op_flags == FI_DELIVERY_COMPLETE);
  }
}

TEST_CASE("providers that move data by threads of the host are not asked for memory of devices") {
  for (const char* const each : {"tcp;ofi_rxm", "shm", "net", "sockets"}) CHECK(moves_by_threads(each));
  for (const char* const each : {"verbs;ofi_rxm", "efa", "cxi", "tcpx"}) CHECK(!moves_by_threads(each));
  endpoint_wish wish = over_loopback(1);
  wish.devices = {true, "GPUDirect RDMA"};
  const auto reached = open_libfabric(wish);
  CHECK(!reached->to_devices().available);
  CHECK_THAT(reached->to_devices().reason, ContainsSubstring("moves data by threads of the host"));
}

TEST_CASE("the card nearest to a rank's device is taken, and those that are as near in turn") {
  const auto root = std::filesystem::temp_directory_path() / ("devcomm_cards_" + std::to_string(::getpid()));
  const auto add = [&](const char* name, const std::string& above) {
    const auto place = root / "devices" / above / name;
    std::filesystem::create_directories(place);
    std::filesystem::create_directories(root / "bus/pci/devices");
    std::filesystem::create_symlink(place, root / "bus/pci/devices" / name);
  };
  add("0000:18:00.0", "pci0000:15/0000:15:01.0/0000:16:00.0");  // the GPU
  add("0000:9a:00.0", "pci0000:97/0000:97:01.0");               // another one
  add("0000:40:00.0", "pci0000:3f/0000:3f:01.0");
  add("0000:19:00.0", "pci0000:15/0000:15:01.0/0000:16:00.0");
  add("0000:1a:00.0", "pci0000:15/0000:15:01.0/0000:16:00.0");
  card far("mlx5_0", 0x40);
  card near("mlx5_1", 0x19);
  card near_again("mlx5_1", 0x19);
  card as_near("mlx5_2", 0x1a);
  card unknown("mlx5_3", 0x77);
  answer without_place(0, 8);
  far.what.info.next = &near.what.info;
  near.what.info.next = &near_again.what.info;
  near_again.what.info.next = &as_near.what.info;
  as_near.what.info.next = &unknown.what.info;
  unknown.what.info.next = &without_place.info;
  const auto chosen = [&](std::uint64_t device, unsigned turn) {
    return std::string(nearest_card(far.what.info, device, turn, root).domain_attr->name);
  };
  CHECK(chosen(0x1800, 0) == "mlx5_1");
  CHECK(chosen(0x1800, 1) == "mlx5_2");
  CHECK(chosen(0x1800, 2) == "mlx5_1");
  CHECK(chosen(0x5500, 1) == "mlx5_0");  // a device that the system does not know: the first answer
  CHECK(&nearest_card(without_place.info, 0x1800, 3, root) == &without_place.info);
  std::filesystem::remove_all(root);
}

TEST_CASE("providers of network cards are listed as libfabric lists them, each once, but those that cannot be used") {
  const auto of = [](card& one, const char* provider) { one.what.fabric.prov_name = const_cast<char*>(provider); };
  card sockets("eth0", 1);
  of(sockets, "tcp;ofi_rxm");
  answer without_card(0, 8);
  without_card.fabric.prov_name = const_cast<char*>("psm2");
  card other_bus("usb0", 2);
  of(other_bus, "opx");
  other_bus.bus_attributes.bus_type = FI_BUS_UNKNOWN;
  card first("mlx5_0", 3);
  of(first, "verbs;ofi_rxm");
  card first_again("mlx5_1", 4);
  of(first_again, "verbs;ofi_rxm");
  card second("efa_0", 5);
  of(second, "efa");
  card down("cxi0", 6);
  of(down, "cxi");
  std::string obstacle = "none";
  CHECK(providers_of_cards(nullptr, "", obstacle).empty());
  sockets.what.info.next = &without_card.info;
  without_card.info.next = &other_bus.what.info;
  CHECK(providers_of_cards(&sockets.what.info, "", obstacle).empty());
  CHECK(obstacle == "none");
  other_bus.what.info.next = &down.what.info;
  down.what.info.next = &first.what.info;
  first.what.info.next = &second.what.info;
  second.what.info.next = &first_again.what.info;
  CHECK(providers_of_cards(&sockets.what.info, "", obstacle) ==
        std::vector<std::string>{"cxi", "verbs;ofi_rxm", "efa"});
  CHECK(obstacle == "none");
  CHECK(providers_of_cards(&sockets.what.info, "efa_0", obstacle) == std::vector<std::string>{"efa"});
  CHECK(answer_of_card(sockets.what.info, "mlx5_1") == &first_again.what.info);
  CHECK(answer_of_card(sockets.what.info, "mlx5_7") == nullptr);
  CHECK(names_of_cards(down.what.info) == "cxi0, mlx5_0, efa_0, mlx5_1");
  down.link.state = FI_LINK_DOWN;
  CHECK(providers_of_cards(&sockets.what.info, "", obstacle) == std::vector<std::string>{"verbs;ofi_rxm", "efa"});
  CHECK(obstacle == "the link of cxi0 is down");
  first.what.domain.mr_mode = FI_MR_RAW;
  first_again.what.domain.mr_mode = FI_MR_RAW;
  CHECK(providers_of_cards(&sockets.what.info, "", obstacle) == std::vector<std::string>{"efa"});
  CHECK_THAT(obstacle, ContainsSubstring("\"verbs;ofi_rxm\" cannot be used"));
}

TEST_CASE("a provider that cannot be used is refused with the reason and another one to take") {
  answer long_keys(FI_MR_PROV_KEY, 32);
  CHECK_THAT(long_keys.problem(), ContainsSubstring("keys of memory have 32 bytes, and there is room for 8"));
  answer short_keys(0, 4);
  CHECK_THAT(short_keys.problem(), ContainsSubstring("strangers could guess"));
  answer small_messages(0, 8);
  small_messages.endpoint.max_msg_size = sizeof(fabric_message);
  CHECK(small_messages.problem().empty());
  small_messages.endpoint.max_msg_size = sizeof(fabric_message) - 1;
  CHECK_THAT(small_messages.problem(), ContainsSubstring("messages have at most 143 bytes, and 144 are needed"));
  answer few_receives(0, 8);
  few_receives.receive.size = 128;
  CHECK_THAT(few_receives.problem(), ContainsSubstring("receives at most 128 messages at a time, and 256 are needed"));
  answer raw_keys(FI_MR_RAW, 8);
  CHECK_THAT(raw_keys.problem(), ContainsSubstring("ways that are not supported"));
  answer prefixes(0, 8);
  prefixes.info.mode = FI_CONTEXT | FI_MSG_PREFIX;
  CHECK_THAT(prefixes.problem(), ContainsSubstring("wants mode bits " + std::to_string(FI_MSG_PREFIX)));
  for (const answer* each : {&long_keys, &short_keys, &small_messages, &few_receives, &raw_keys, &prefixes}) {
    CHECK_THAT(each->problem(), ContainsSubstring("set DEVCOMM_GIN_PROVIDER to another one, such as tcp;ofi_rxm"));
  }
}

namespace {

/// One of two ranks on a real fabric, which signal each other.
struct connected_rank {
  explicit connected_rank(int rank) {
    devcomm::network_request asked{};
    asked.contexts = 1;
    asked.peers = 2;
    asked.signals = 1;
    asked.depth = 4;
    queues.push_back(std::make_unique<network_queue>(current_backend(), words, 0, asked));
    listing = windows->list(1, {memory.data(), memory.size(), "window 'test'"});
    endpoint = std::make_unique<fabric_endpoint>(
        fabric_endpoint::surroundings{rank, windows, [this](const std::string& text) { reports.push_back(text); }},
        open_libfabric(over_loopback(2)));
  }
  ~connected_rank() { endpoint->close({}); }
  void connect(const std::vector<fabric_endpoint::card>& cards) {
    endpoint->connect(cards);
    engine = std::make_unique<fabric_engine>(
        fabric_engine::surroundings{0, queues, [this](const std::string& text) { failure = text; }, 10s}, *endpoint);
    engine->attach();
  }
  void step() {
    static_cast<void>(endpoint->poll());
    static_cast<void>(engine->step());
  }
  [[nodiscard]] std::uint64_t signal() { return words.load(queues[0]->record().words + queues[0]->layout().signal(0)); }
  void post_signal(std::uint32_t peer, std::uint64_t turn) {
    devcomm::gin::descriptor_head head{};
    head.kind = devcomm::gin::operation_kind::signal;
    head.change = devcomm::gin::signal_change::add;
    head.peer = peer;
    devcomm::gin::descriptor what{};
    what.signal_value = 1;
    test::post_descriptor(queues[0]->record().ring, turn, 4, what, head);
  }

  network_port words;
  std::vector<char> memory = std::vector<char>(4096, 'a');
  std::shared_ptr<window_table> windows = std::make_shared<window_table>();
  std::unique_ptr<window_table::listing> listing;
  std::vector<std::unique_ptr<network_queue>> queues;
  std::string failure;
  std::vector<std::string> reports;
  std::unique_ptr<fabric_endpoint> endpoint;
  std::unique_ptr<fabric_engine> engine;
};

}  // namespace

TEST_CASE("over tcp a stranger who knows the address of a rank can neither signal nor write, and disturbs nobody") {
  connected_rank zero(0);
  connected_rank one(1);
  const std::vector<fabric_endpoint::card> cards = {zero.endpoint->own_card(), one.endpoint->own_card()};
  zero.connect(cards);
  one.connect(cards);
  const auto until = [&](const auto& over) {
    const auto begun = std::chrono::steady_clock::now();
    while (!over() && std::chrono::steady_clock::now() - begun < 10s) {
      zero.step();
      one.step();
    }
    return over();
  };
  zero.post_signal(1, 0);
  CHECK(until([&] { return one.signal() == 1; }));

  const auto stranger = open_libfabric(over_loopback(1));
  stranger->connect({&cards[1].address, 1});
  fabric_message forged;
  forged.sender = 0;
  forged.sequence = 1;
  forged.kind = message_kind::change;
  forged.signal_change = devcomm::gin::signal_change::add;
  forged.signal_value = 100;
  std::vector<char> bytes(64, 'x');
  const auto sent = stranger->add_buffers(std::as_writable_bytes(std::span(&forged, 1)));
  const auto source = stranger->add_memory(bytes.data(), bytes.size(), {});
  std::string said = "nothing";
  bool is_sent = false;
  CHECK(until([&] {
    if (!is_sent) is_sent = stranger->send(0, std::as_bytes(std::span(&forged, 1)), *sent, 1);
    std::array<fabric_completion, 1> over;
    static_cast<void>(stranger->poll(over));
    return !one.reports.empty();
  }));
  CHECK_THAT(one.reports.at(0), ContainsSubstring("its sender does not know the secret"));
  bool is_written = false;
  CHECK(until([&] {
    if (!is_written) is_written = stranger->write(0, bytes, *source, {12345, 0}, 2, {});
    std::array<fabric_completion, 1> over;
    if (stranger->poll(over) == 1 && over[0].token == 2) said = over[0].error;
    return said != "nothing";
  }));
  CHECK(!said.empty());  // refused
  CHECK(one.memory == std::vector<char>(4096, 'a'));

  zero.post_signal(1, 1);
  CHECK(until([&] { return one.signal() == 2; }));
  CHECK(one.failure + zero.failure == "");
}

// Run alone, with the library of old_libfabric.cpp in the search path.
TEST_CASE("a library that is too old is refused with its file, its version and what to do", "[.][old]") {
  try {
    static_cast<void>(open_libfabric(over_loopback(2)));
    FAIL("it was taken");
  } catch (const devcomm::host::not_supported& refusal) {
    const std::string file = std::string(DEVCOMM_OLD_LIBFABRIC) + "/libfabric.so.1";
    CHECK_THAT(refusal.what(), ContainsSubstring(file + " is libfabric 1.11; install libfabric 1.17 or newer"));
    CHECK_THAT(refusal.what(), ContainsSubstring("or take " + file + " out of the search path (LD_LIBRARY_PATH)"));
  }
}

namespace {

std::unique_ptr<fabric_thread> open_thread(int rank, int ranks) {
  return std::make_unique<fabric_thread>(
      current_backend(), fabric_thread::settings{rank, 0, {}, static_cast<std::uint32_t>(ranks), false},
      std::make_shared<window_table>(), open_libfabric(over_loopback(static_cast<std::size_t>(ranks))));
}

/// Calls `rank(number, agree)` on threads.
template <class Rank>
void on_ranks(int count, const Rank& rank) {
  const auto bootstraps = host::thread_bootstraps(count);
  std::vector<std::thread> threads;
  for (int number = 0; number < count; ++number) {
    threads.emplace_back([&, number] {
      const agreement agree(bootstraps[static_cast<std::size_t>(number)], current_backend(), 10s);
      rank(number, agree);
    });
  }
  for (std::thread& each : threads) each.join();
}

}  // namespace

TEST_CASE("ranks read from their parents the cards that the bootstrap does not send them") {
  const int count = GENERATE(1, 2, 11);
  const card_tree tree{count, GENERATE(1, 2, 3, 16)};
  std::vector<std::unique_ptr<fabric_thread>> threads;
  std::vector<fabric_endpoint::card> wanted;
  for (int rank = 0; rank < count; ++rank) {
    threads.push_back(open_thread(rank, count));
    wanted.push_back(threads.back()->own_card());
  }
  std::vector<fabric_endpoint::card> terms(wanted.size());
  for (auto& each : terms) each.address.bytes = wanted[0].address.bytes;
  std::vector<std::vector<fabric_endpoint::card>> found(wanted.size());
  on_ranks(count, [&](int rank, const agreement& agree) {
    const auto place = static_cast<std::size_t>(rank);
    found[place] = exchange_cards(agree, "create_device_comm", *threads[place], terms, tree);
  });
  for (const auto& each : found) {
    REQUIRE(each.size() == wanted.size());
    for (std::size_t rank = 0; rank < wanted.size(); ++rank) {
      CHECK(std::memcmp(&each[rank].secret, &wanted[rank].secret, sizeof wanted[rank].secret) == 0);
      CHECK(each[rank].address.bytes == wanted[rank].address.bytes);
      CHECK(each[rank].address.name == wanted[rank].address.name);
    }
  }
}

TEST_CASE("cards that cannot be read from a peer end the exchange with an error that names it, or in its time") {
  const auto here = open_thread(0, 2);
  const auto peer = open_thread(1, 2);
  const std::vector<fabric_endpoint::card> cards = {here->own_card(), peer->own_card()};
  const remote_address offered = peer->offer_table(64);
  const std::vector<std::byte> table(64, std::byte{7});
  peer->fill_table(table);
  static_cast<void>(here->offer_table(64));
  here->connect(cards, 10s);
  // The peer's thread does not run yet.
  CHECK_THROWS_AS(here->read_table(1, offered, 100ms), host::timeout_error);
  peer->connect(cards, 10s);
  const auto late = open_thread(0, 2);
  static_cast<void>(late->offer_table(64));
  late->connect({late->own_card(), cards[1]}, 10s);
  CHECK(late->read_table(1, offered, 10s) == table);
  const auto wrong = open_thread(0, 2);
  static_cast<void>(wrong->offer_table(64));
  wrong->connect({wrong->own_card(), cards[1]}, 10s);
  CHECK_THROWS_WITH(wrong->read_table(1, {offered.key + 1, offered.address}, 10s),
                    ContainsSubstring("reading the addresses of the network from rank 1: "));
}
