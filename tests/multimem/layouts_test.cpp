#include <devcomm/multimem/barriers.hpp>
#include <devcomm/multimem/window_record.hpp>
#include <devcomm/requirements.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <iterator>
#include <map>
#include <type_traits>

using namespace devcomm;

static_assert(std::is_trivially_copyable_v<multimem::barrier_handle> && sizeof(multimem::barrier_handle) == 16);
static_assert(std::is_trivially_copyable_v<multimem::window_record>);

TEST_CASE("the words of a set of multimem barriers are apart, aligned and within its bytes") {
  for (std::uint32_t members = 1; members <= 72; members += 7) {
    for (std::uint32_t count = 1; count <= 33; count += 8) {
      const multimem::barrier_layout layout{count, members};
      std::map<std::uint64_t, std::uint64_t> words;  // by offset: bytes
      const auto add = [&](std::uint64_t offset, std::uint64_t bytes) {
        CHECK(offset % (bytes > 8 ? 8 : bytes) == 0);
        CHECK(words.emplace(offset, bytes).second);
      };
      for (std::uint32_t index = 0; index < count; ++index) {
        add(layout.epoch(index), 8);
        add(layout.outcome(index), 4);
        for (std::uint32_t writer = 0; writer < members; ++writer) add(layout.flag(index, writer), 4);
        for (const std::uint64_t epoch : {6u, 7u}) {
          add(layout.arrivals(index, epoch), 4);
          for (std::uint32_t writer = 0; writer < members; ++writer)
            add(layout.contract(index, writer, epoch), sizeof(launch_contract));
        }
      }
      for (auto at = words.begin(); at != words.end(); ++at) {
        const auto next = std::next(at);
        CHECK(at->first + at->second <= (next == words.end() ? layout.bytes() : next->first));
      }
    }
  }
}

TEST_CASE("multimem barriers ask for multimem on the resource window") {
  requirements needs(world_team(1, 4));
  const auto handle = needs.add(multimem::barriers{3, multimem::policy::required});
  CHECK(multimem::policy_of(needs) == multimem::policy::required);
  CHECK(handle.count == 3);
  CHECK(handle.members == 4);
  CHECK(handle.offset % 128 == 0);
  CHECK(needs.bytes() == handle.offset + multimem::barrier_layout{3, 4}.bytes());
}
