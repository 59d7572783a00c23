#include "model/time_model.hpp"
#include "model/measured.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

using namespace model;
using Catch::Approx;

namespace {

constexpr double mebibyte = 1 << 20;
constexpr double never = 1e300;

/// Only one kind of link, so that its figures are all that matters.
machine only(int hosts, int ranks_per_host, link inside, link network) {
  machine on;
  on.hosts = hosts;
  on.ranks_per_host = ranks_per_host;
  on.launch = 1;
  on.memory = never;
  on.loads = on.packets = on.lines = on.flags = inside;
  on.network = network;
  return on;
}
machine only(int ranks, link inside) { return only(1, ranks, inside, {}); }

std::vector<machine> machines() {
  std::vector<machine> all;
  for (const int hosts : {1, 2, 3, 16, 300}) {
    for (const int ranks : {1, 2, 3, 4, 8}) all.push_back(h200(hosts, ranks));
  }
  return all;
}

template <class Body>
void for_each_case(Body body) {
  for (const machine& on : machines()) {
    for (const algorithm which : algorithms_of(on)) {
      INFO(name_of(which) << " on " << on.hosts << " x " << on.ranks_per_host);
      body(on, which);
    }
  }
}

/// Whether `change`, which makes a machine worse, makes nothing faster.
void check_slower(const std::function<void(machine&)>& change) {
  for_each_case([&](const machine& on, algorithm which) {
    machine worse = on;
    change(worse);
    for (double bytes = 16; bytes < 1e10; bytes *= 16) {
      if (predict(worse, which, bytes).us < predict(on, which, bytes).us) FAIL(bytes << " bytes are faster");
    }
  });
}

}  // namespace

TEST_CASE("more bytes never take less time") {
  for_each_case([](const machine& on, algorithm which) {
    double before = 0;
    for (double bytes = 8; bytes < 1e11; bytes *= 2) {
      const double us = predict(on, which, bytes).us;
      if (!(us >= before) || !std::isfinite(us)) FAIL(bytes << " bytes take " << us << " us, fewer " << before);
      before = us;
    }
  });
}

TEST_CASE("slower links, memory and launches never take less time") {
  check_slower([](machine& m) { m.launch += 1; });
  check_slower([](machine& m) { m.memory /= 2; });
  check_slower([](machine& m) { m.network.latency *= 2; });
  check_slower([](machine& m) { m.network.rate /= 2; });
  check_slower([](machine& m) { m.network.message += 1; });
  check_slower([](machine& m) { m.loads.latency = m.packets.latency = m.lines.latency = m.flags.latency = 10; });
  check_slower([](machine& m) {
    for (link* const each : {&m.loads, &m.packets, &m.lines, &m.flags}) each->rate /= 2;
  });
}

TEST_CASE("more hosts never take less time") {
  for (const int ranks : {1, 4, 8}) {
    for (const algorithm which : algorithms_of(h200(2, ranks))) {
      for (double bytes = 1024; bytes < 1e10; bytes *= 32) {
        double before = 0;
        for (int hosts = 2; hosts <= 4096; hosts *= 2) {
          const double us = predict(h200(hosts, ranks), which, bytes).us;
          // A direct message to each is shorter the more there are; its own time remains.
          if (us < before * 0.999) FAIL(name_of(which) << ", " << hosts << " hosts of " << ranks << ", " << bytes);
          before = us;
        }
      }
    }
  }
}

TEST_CASE("a single rank takes a launch") {
  for (const algorithm which : algorithms_of(h200(1, 1))) {
    CHECK(predict(only(1, {5, 100}), which, mebibyte).us == Approx(1));
  }
}

TEST_CASE("without latency each algorithm takes the time of the bytes that a rank sends") {
  for (const int ranks : {2, 4, 8, 64}) {
    const machine on = only(ranks, {0, 100});
    const double share = 1.0 / ranks;
    CHECK(predict(on, algorithm::one_shot, mebibyte).us == Approx(1 + (ranks - 1) * mebibyte / 100));
    CHECK(predict(on, algorithm::two_shot, mebibyte).us == Approx(1 + 2 * (1 - share) * mebibyte / 100));
    CHECK(predict(on, algorithm::ring, mebibyte).us == Approx(1 + 2 * (1 - share) * mebibyte / 100));
  }
  // In small chunks: the busiest rank of a tree sends twice the vector, with two ranks once.
  CHECK(predict(only(2, {0, 100}), algorithm::tree, 1024 * mebibyte).us ==
        Approx(1024 * mebibyte / 100).epsilon(0.001));
  CHECK(predict(only(64, {0, 100}), algorithm::tree, 1024 * mebibyte).us ==
        Approx(2 * 1024 * mebibyte / 100).epsilon(0.001));
}

TEST_CASE("without bytes each algorithm takes its hops") {
  for (const int ranks : {2, 4, 8, 64}) {
    const machine on = only(ranks, {3, never});
    CHECK(predict(on, algorithm::one_shot, 8).us == Approx(1 + 3));
    CHECK(predict(on, algorithm::two_shot, 8).us == Approx(1 + 2 * 3));
    CHECK(predict(on, algorithm::ring, 8).us == Approx(1 + 2 * (ranks - 1) * 3));
    CHECK(predict(on, algorithm::tree, 8).us == Approx(1 + 2 * std::log2(ranks) * 3));
  }
}

TEST_CASE("hosts add the hops of the network") {
  const machine on = only(16, 8, {3, never}, {50, never, 0});
  CHECK(predict(on, algorithm::ring, 8).us == Approx(1 + 2 * 127 * (112 * 3 + 16 * 50) / 128.0));
  CHECK(predict(on, algorithm::tree, 8).us == Approx(1 + 2 * (3 * 3 + 4 * 50)));
  CHECK(predict(on, algorithm::rail_ring, 8).us == Approx(1 + 2 * 3 + 2 * 15 * 50));
  CHECK(predict(on, algorithm::rail_tree, 8).us == Approx(1 + 2 * 3 + 2 * 4 * 50));
}

TEST_CASE("network cards that are slow bound what crosses hosts") {
  const machine on = only(16, 8, {0, never}, {0, 100, 0});
  CHECK(predict(on, algorithm::ring, mebibyte).us == Approx(1 + 2 * 127 / 128.0 * mebibyte / 800));
  CHECK(predict(on, algorithm::rail_ring, mebibyte).us == Approx(1 + 2 * 15 / 16.0 * mebibyte / 800));
  CHECK(predict(on, algorithm::two_shot, mebibyte).us == Approx(1 + 2 * 120 / 128.0 * mebibyte / 100));
  // In small chunks; the busiest host of a tree sends twice the vector, through all of its cards.
  const double large = 4096 * mebibyte;
  CHECK(predict(on, algorithm::tree, large).us == Approx(2 * large / 800).epsilon(0.001));
  CHECK(predict(on, algorithm::rail_tree, large).us == Approx(2 * large / 800).epsilon(0.001));
}

TEST_CASE("from some scale on a tree is faster than a ring, the later the larger the vector") {
  const auto scale = [](double bytes) {
    for (int hosts = 2; hosts <= 1 << 14; hosts *= 2) {
      const machine on = h200(hosts, 8);
      if (predict(on, algorithm::tree, bytes).us < predict(on, algorithm::ring, bytes).us) return hosts;
    }
    return 1 << 20;
  };
  int before = 0;
  for (double bytes = 1024; bytes <= 4096 * mebibyte; bytes *= 64) {
    CHECK(scale(bytes) >= before);
    before = scale(bytes);
  }
  CHECK(before > 2);
  CHECK(before <= 1 << 14);
}

TEST_CASE("the model is close to what was measured") {
  for (const measured_row& row : measured_rows()) {
    const machine on = h200(1, row.ranks);
    const double bytes = row.kib * 1024;
    const double us = row.how ? predict(on, row.which, *row.how, bytes) : predict(on, row.which, bytes).us;
    INFO(row.who << ", " << row.ranks << " GPUs, " << row.kib << " KiB: " << us << " and measured " << row.us);
    if (row.which != algorithm::ring) {
      CHECK(us == Approx(row.us).epsilon(0.12));
    } else if (row.ranks > 2) {
      CHECK(us + nccl_start() == Approx(row.us).epsilon(0.25));
      if (row.kib >= 65536) CHECK(us == Approx(row.us).epsilon(0.06));
    }
  }
}

TEST_CASE("the model of two hosts is close to what was measured from 1 MiB on") {
  for (const socket_row& row : socket_rows()) {
    const double us = predict(socket_pair(), algorithm::ring, row.kib * 1024).us;
    INFO(row.kib << " KiB: " << us << " and measured " << row.us);
    CHECK(us == Approx(row.us).epsilon(row.kib < 1024 ? 0.5 : 0.16));
  }
}

TEST_CASE("depth and messages of double binary trees") {
  CHECK(tree_depth(1) == 0);
  CHECK(tree_depth(2) == 1);
  CHECK(tree_depth(8) == 3);
  CHECK(tree_depth(16384) == 14);
  CHECK(tree_messages(1) == 0);
  CHECK(tree_messages(2) == 2);
  CHECK(tree_messages(3) == 3);
  CHECK(tree_messages(16384) == 4);
}
