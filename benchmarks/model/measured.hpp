/// \file measured.hpp
/// All-reduces of bf16 on H200s of one NVLink switch, out of place, by programs of which the model knows the algorithm.
#pragma once

#include "model/time_model.hpp"

#include <optional>
#include <string>
#include <vector>

namespace model {

struct measured_row {
  const char* who;
  int ranks;  ///< GPUs of one host
  algorithm which;
  std::optional<protocol> how;  ///< empty: the fastest
  double kib;
  double us;
};

/// NCCL 2.28.9 with plain buffers is a ring. vLLM's custom all-reduce loads, in one step for two ranks and in two for
/// more; the best peer on 4 GPUs was measured without its name, and is taken for a two-shot of that kind.
inline const std::vector<measured_row>& measured_rows() {
  constexpr auto one = algorithm::one_shot;
  constexpr auto two = algorithm::two_shot;
  constexpr auto ring = algorithm::ring;
  constexpr auto loads = protocol::loads;
  static const std::vector<measured_row> rows = {
      {"vLLM one-stage", 2, one, loads, 4096, 19.7}, {"vLLM one-stage", 2, one, loads, 8192, 34.4},
      {"best peer", 4, two, loads, 1024, 11.7},      {"best peer", 4, two, loads, 2048, 17.4},
      {"best peer", 4, two, loads, 4096, 29.1},      {"best peer", 4, two, loads, 8192, 52.2},
      {"vLLM two-stage", 8, two, loads, 2048, 20.6}, {"vLLM two-stage", 8, two, loads, 4096, 34.1},
      {"vLLM two-stage", 8, two, loads, 8192, 61.2}, {"vLLM two-stage", 8, two, loads, 16384, 115},
      {"NCCL ring", 2, ring, {}, 1, 5.91},           {"NCCL ring", 2, ring, {}, 64, 7.12},
      {"NCCL ring", 2, ring, {}, 1024, 13.81},       {"NCCL ring", 2, ring, {}, 8192, 45.76},
      {"NCCL ring", 2, ring, {}, 16384, 72.56},      {"NCCL ring", 2, ring, {}, 65536, 232.30},
      {"NCCL ring", 2, ring, {}, 262144, 839.66},    {"NCCL ring", 4, ring, {}, 1, 8.89},
      {"NCCL ring", 4, ring, {}, 64, 10.72},         {"NCCL ring", 4, ring, {}, 1024, 17.69},
      {"NCCL ring", 4, ring, {}, 8192, 60.18},       {"NCCL ring", 4, ring, {}, 16384, 95.86},
      {"NCCL ring", 4, ring, {}, 65536, 321.20},     {"NCCL ring", 4, ring, {}, 262144, 1181.11},
      {"NCCL ring", 8, ring, {}, 1, 15.4},           {"NCCL ring", 8, ring, {}, 64, 18.4},
      {"NCCL ring", 8, ring, {}, 1024, 25.0},        {"NCCL ring", 8, ring, {}, 2048, 33.3},
      {"NCCL ring", 8, ring, {}, 4096, 47.2},        {"NCCL ring", 8, ring, {}, 8192, 72.3},
      {"NCCL ring", 8, ring, {}, 16384, 115},        {"NCCL ring", 8, ring, {}, 32768, 209},
      {"NCCL ring", 8, ring, {}, 65536, 365},        {"NCCL ring", 8, ring, {}, 131072, 693},
      {"NCCL ring", 8, ring, {}, 262144, 1351},
  };
  return rows;
}

/// NCCL's ring over two hosts of one GPU each, by sockets on loopback.
struct socket_row {
  double kib;
  double us;
};
inline const std::vector<socket_row>& socket_rows() {
  static const std::vector<socket_row> rows = {{1, 42}, {64, 103}, {1024, 326}, {16384, 3813}, {65536, 16137}};
  return rows;
}
/// That network, by NCCL's ping-pong over it, one way: 31 us for 1 KiB, 17,413 us for 64 MiB.
inline machine socket_pair() {
  machine on = h200(2, 1);
  on.network = {31, 65536 * 1024 / 17413.0};
  return on;
}

/// What NCCL's kernel takes beside an empty one and its hops: its 2-rank row of 1 KiB less the model's.
inline double nccl_start() {
  const machine pair = h200(1, 2);
  return 5.91 - predict(pair, algorithm::ring, 1024).us;
}

}  // namespace model
