#include <race/cell.hpp>

#include <catch2/catch_test_macros.hpp>

#include <set>

using namespace devcomm::simulator::race;

namespace {

constexpr uint64_t plain_read = 0;
constexpr uint64_t plain_write = record::write;
constexpr uint64_t atomic_read = record::atomic;
constexpr uint64_t atomic_write = record::atomic | record::write;

record by(uint32_t thread, uint64_t kind, uint64_t bytes = record::all_bytes, uint32_t epoch = 1) {
  return record::make(1 + thread / 1024, thread % 1024, epoch, 0x1000 + thread, kind, bytes);
}

/// A cell whose accesses are ordered as the test says.
class tried_cell {
 public:
  ~tried_cell() { c_.clear(); }
  /// The threads that `now` races with, where it comes after those of `after`.
  std::set<uint32_t> access(const record& now, const std::set<uint32_t>& after = {}) {
    std::set<uint32_t> raced;
    const auto thread_of = [](const record& r) { return static_cast<uint32_t>(r.code() - 0x1000); };
    c_.access(
        now, [&](const record& r) { return thread_of(r) == thread_of(now) || after.count(thread_of(r)) != 0; },
        [&](const record& r) { raced.insert(thread_of(r)); });
    return raced;
  }
  std::size_t records() const { return c_.records(); }

 private:
  cell c_;
};

using threads = std::set<uint32_t>;

}  // namespace

TEST_CASE("a write races with an unordered read and an unordered write") {
  tried_cell c;
  CHECK(c.access(by(1, plain_write)).empty());
  CHECK(c.access(by(2, plain_read)) == threads{1});
  CHECK(c.access(by(3, plain_write), {1}) == threads{2});
}

TEST_CASE("reads do not race with reads, nor atomics with atomics") {
  tried_cell c;
  CHECK(c.access(by(1, plain_read)).empty());
  CHECK(c.access(by(2, plain_read)).empty());
  tried_cell d;
  CHECK(d.access(by(1, atomic_write)).empty());
  CHECK(d.access(by(2, atomic_write)).empty());
  CHECK(d.access(by(3, atomic_read)).empty());
  CHECK(d.access(by(4, plain_read)) == threads{1, 2});
}

TEST_CASE("byte neighbors do not race, the same byte does") {
  tried_cell c;
  for (uint32_t i = 0; i < 4; ++i) CHECK(c.access(by(i, plain_write, uint64_t{1} << i)).empty());
  CHECK(c.access(by(7, plain_read, 0b0110)) == threads{1, 2});
}

TEST_CASE("no reader is dropped for another") {
  for (const uint32_t readers : {1u, 2u, 3u, 31u, 33u, 100u, 5000u}) {
    tried_cell c;
    threads all_but_one;
    for (uint32_t i = 0; i < readers; ++i) {
      CHECK(c.access(by(i, plain_read)).empty());
      if (i != readers / 2) all_but_one.insert(i);
    }
    CHECK(c.access(by(9000, plain_write), all_but_one) == threads{readers / 2});
  }
}

TEST_CASE("concurrent atomic changes are all kept") {
  for (const uint32_t changers : {2u, 3u, 40u, 3000u}) {
    tried_cell c;
    threads all_but_first;
    for (uint32_t i = 0; i < changers; ++i) {
      CHECK(c.access(by(i, atomic_write)).empty());
      if (i != 0) all_but_first.insert(i);
    }
    CHECK(c.access(by(9000, plain_read), all_but_first) == threads{0});
  }
}

TEST_CASE("what an ordered write covers is forgotten") {
  tried_cell c;
  threads readers;
  for (uint32_t i = 0; i < 100; ++i) {
    c.access(by(i, plain_read));
    readers.insert(i);
  }
  CHECK(c.access(by(200, plain_write), readers).empty());
  CHECK(c.records() == 1);
}

TEST_CASE("repeated reads in ordered rounds do not pile up") {
  tried_cell c;
  threads earlier;
  for (uint32_t round = 0; round < 1000; ++round) {
    CHECK(c.access(by(round, plain_read), earlier).empty());
    earlier.insert(round);
  }
  CHECK(c.records() < 100);
}

TEST_CASE("an atomic change does not stand for an ordered plain write before it") {
  tried_cell c;
  c.access(by(1, plain_write));
  CHECK(c.access(by(2, atomic_write), {1}).empty());
  CHECK(c.access(by(3, atomic_write), {}) == threads{1});
}
