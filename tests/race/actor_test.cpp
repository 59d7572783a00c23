#include <race/actor.hpp>

#include <catch2/catch_test_macros.hpp>

using namespace devcomm::simulator::race;

namespace {

/// A thread of a group of four that has just accessed something.
actor thread(uint32_t lane) {
  actor a;
  a.group = 1;
  a.width = 4;
  a.lane = lane;
  a.dirty = true;
  return a;
}

/// Whether `a` is ordered after the first epoch of lane 0.
bool knows_first(const actor& a) { return epoch_of(a.known, 1, 0) >= 1; }

}  // namespace

TEST_CASE("a release store orders what came before it, and not what comes after") {
  actor writer = thread(0);
  actor reader = thread(1);
  variable flag;
  flag.store(writer, true);
  writer.dirty = true;
  flag.load(reader, true);
  CHECK(knows_first(reader));
  CHECK(epoch_of(reader.known, 1, 0) < writer.epoch);
}

TEST_CASE("a relaxed store or a relaxed load orders nothing") {
  actor writer = thread(0);
  actor reader = thread(1);
  variable flag;
  flag.store(writer, false);
  flag.load(reader, true);
  CHECK_FALSE(knows_first(reader));
  flag.store(writer, true);
  flag.load(reader, false);
  CHECK_FALSE(knows_first(reader));
}

TEST_CASE("a release fence makes later relaxed stores publish, an acquire fence makes earlier relaxed loads acquire") {
  actor writer = thread(0);
  actor reader = thread(1);
  variable flag;
  writer.release_fence();
  flag.store(writer, false);
  flag.load(reader, false);
  CHECK_FALSE(knows_first(reader));
  reader.acquire_fence();
  CHECK(knows_first(reader));
}

TEST_CASE("a release fence publishes what came before the fence, not what lies between it and the store") {
  actor writer = thread(0);
  actor reader = thread(1);
  variable flag;
  writer.release_fence();
  writer.dirty = true;
  const uint32_t between = writer.epoch;
  flag.store(writer, false);
  flag.load(reader, true);
  CHECK(knows_first(reader));
  CHECK(epoch_of(reader.known, 1, 0) < between);
}

TEST_CASE("an acquire fence before the load acquires nothing") {
  actor writer = thread(0);
  actor reader = thread(1);
  variable flag;
  flag.store(writer, true);
  reader.acquire_fence();
  flag.load(reader, false);
  CHECK_FALSE(knows_first(reader));
}

TEST_CASE("changes by others go on with a release sequence, their stores end it") {
  actor writer = thread(0);
  actor other = thread(2);
  actor reader = thread(1);
  variable flag;
  flag.store(writer, true);
  flag.change(other, false, false);
  flag.load(reader, true);
  CHECK(knows_first(reader));

  actor late = thread(3);
  flag.store(other, false);
  flag.load(late, true);
  CHECK_FALSE(knows_first(late));
}

TEST_CASE("a thread's own relaxed store goes on with its release sequence") {
  actor writer = thread(0);
  actor reader = thread(1);
  variable flag;
  flag.store(writer, true);
  flag.store(writer, false);
  flag.load(reader, true);
  CHECK(knows_first(reader));
}

TEST_CASE("a releasing change of one thread keeps what another has released") {
  actor writer = thread(0);
  actor other = thread(2);
  actor reader = thread(1);
  variable count;
  count.change(writer, false, true);
  count.change(other, false, true);
  count.load(reader, true);
  CHECK(knows_first(reader));
  CHECK(epoch_of(reader.known, 1, 2) == 1);
}

TEST_CASE("participants of a barrier know what all did before, and nobody's later epoch") {
  sync_point m;
  actor threads[4] = {thread(0), thread(1), thread(2), thread(3)};
  for (actor& a : threads) m.release(a);
  for (actor& a : threads) m.acquire(a);
  for (const actor& a : threads) {
    for (uint32_t lane = 0; lane < 4; ++lane) CHECK(epoch_of(a.known, 1, lane) == 1);
    CHECK(a.epoch == 2);
  }
  CHECK(threads[0].known == threads[3].known);
}

TEST_CASE("loads of many variables are all joined by one fence") {
  actor reader = thread(1);
  for (uint32_t group = 2; group < 60; ++group) {
    actor writer = thread(0);
    writer.group = group;
    variable flag;
    flag.store(writer, true);
    flag.load(reader, false);
  }
  reader.acquire_fence();
  for (uint32_t group = 2; group < 60; ++group) CHECK(epoch_of(reader.known, group, 0) == 1);
}
