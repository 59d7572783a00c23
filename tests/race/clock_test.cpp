#include <race/clock.hpp>

#include <catch2/catch_test_macros.hpp>

using namespace devcomm::simulator::race;

TEST_CASE("a clock knows nothing at first") {
  const clock_reference none;
  CHECK(epoch_of(none, 1, 0) == 0);
  const clock_reference empty(new devcomm::simulator::race::clock);
  CHECK(epoch_of(empty, 7, 3) == 0);
}

TEST_CASE("raise tells of one thread and never takes back") {
  clock_reference c;
  raise(c, 5, 128, 17, 4);
  CHECK(c->of(5, 17) == 4);
  CHECK(c->of(5, 16) == 0);
  CHECK(c->of(4, 17) == 0);
  raise(c, 5, 128, 17, 3);
  CHECK(c->of(5, 17) == 4);
}

TEST_CASE("a join knows the later of both") {
  clock_reference a;
  clock_reference b;
  raise(a, 1, 2, 0, 9);
  raise(a, 2, 2, 1, 1);
  raise(b, 1, 2, 0, 3);
  raise(b, 1, 2, 1, 5);
  raise(b, 3, 1, 0, 2);
  const clock_reference before = b;
  join(a, b);
  CHECK(a->of(1, 0) == 9);
  CHECK(a->of(1, 1) == 5);
  CHECK(a->of(2, 1) == 1);
  CHECK(a->of(3, 0) == 2);
  CHECK(b->of(1, 0) == 3);
  CHECK(b == before);
}

TEST_CASE("a change of one clock does not show in those that shared it") {
  clock_reference a;
  raise(a, 1, 4, 0, 1);
  clock_reference b = a;
  raise(b, 1, 4, 1, 7);
  CHECK(a->of(1, 1) == 0);
  CHECK(b->of(1, 0) == 1);
  CHECK(b->of(1, 1) == 7);
}

TEST_CASE("clocks that know the same share one object") {
  clock_reference more;
  raise(more, 1, 4, 0, 1);
  clock_reference less = more;
  raise(more, 2, 4, 0, 1);
  join(less, more);
  CHECK(less == more);
  clock_reference same = more;
  join(same, less);
  CHECK(same == more);
}

TEST_CASE("versions that grew apart are joined lane by lane, whatever their common past") {
  clock_reference past;
  raise(past, 1, 4, 0, 1);
  clock_reference a = past;
  clock_reference b = past;
  raise(a, 1, 4, 1, 5);
  raise(b, 1, 4, 2, 6);
  raise(b, 1, 4, 2, 7);
  clock_reference both = a;
  join(both, b);
  CHECK(both->of(1, 0) == 1);
  CHECK(both->of(1, 1) == 5);
  CHECK(both->of(1, 2) == 7);

  // One that is changed in place after another went on from it is no longer behind that other.
  clock_reference alone;
  raise(alone, 1, 4, 0, 1);
  {
    clock_reference next = alone;
    raise(next, 1, 4, 1, 1);
    const clock_reference kept = next;
    raise(alone, 1, 4, 3, 9);
    join(next, alone);
    CHECK(next->of(1, 3) == 9);
    CHECK(next->of(1, 1) == 1);
    CHECK(kept->of(1, 3) == 0);
  }
}

TEST_CASE("dropped groups are forgotten, in this clock only") {
  clock_reference a;
  raise(a, 1, 1, 0, 1);
  raise(a, 2, 1, 0, 1);
  const clock_reference b = a;
  drop_groups(a, [](uint32_t group) { return group == 1; });
  CHECK(a->of(1, 0) == 0);
  CHECK(a->of(2, 0) == 1);
  CHECK(b->of(1, 0) == 1);
}
