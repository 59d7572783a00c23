/// NCCL's sends, receives and collectives on streams: every type with every operator, in place and not, any root, any
/// length; groups of messages; several streams; and what is refused.
#include <nccl.h>

#include "nccl/on_ranks.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace {

/// Memory of a rank.
template <class T>
class vector_on_device {
 public:
  explicit vector_on_device(const std::vector<T>& values) : count_(values.size()) {
    ok(cudaMalloc(reinterpret_cast<void**>(&data_), std::max(bytes(), sizeof(T))));
    ok(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice));
  }
  explicit vector_on_device(std::size_t count) : vector_on_device(std::vector<T>(count)) {}
  vector_on_device(const vector_on_device&) = delete;
  vector_on_device& operator=(const vector_on_device&) = delete;
  ~vector_on_device() { cudaFree(data_); }

  [[nodiscard]] T* get() const { return data_; }
  [[nodiscard]] std::vector<T> read(cudaStream_t stream = cudaStreamPerThread) const {
    std::vector<T> values(count_);
    ok(cudaMemcpyAsync(values.data(), data_, bytes(), cudaMemcpyDeviceToHost, stream));
    ok(cudaStreamSynchronize(stream));
    return values;
  }

 private:
  [[nodiscard]] std::size_t bytes() const { return count_ * sizeof(T); }

  std::size_t count_;
  T* data_ = nullptr;
};

/// What rank `r` has as element `i`: 1 to 3, so that products of few ranks are exact in every type.
template <class T>
T value(int r, std::size_t i) {
  return static_cast<T>(static_cast<float>(1 + (static_cast<std::size_t>(r) + i) % 3));
}
template <class T>
std::vector<T> values(int r, std::size_t count) {
  std::vector<T> made(count);
  for (std::size_t i = 0; i < count; ++i) made[i] = value<T>(r, i);
  return made;
}
float reduced(ncclRedOp_t op, int ranks, std::size_t i) {
  float result = value<float>(0, i);
  for (int r = 1; r < ranks; ++r) {
    const float next = value<float>(r, i);
    result = op == ncclProd  ? result * next
             : op == ncclMax ? std::max(result, next)
             : op == ncclMin ? std::min(result, next)
                             : result + next;
  }
  return op == ncclAvg ? result / static_cast<float>(ranks) : result;
}
template <class T>
void expect(const std::vector<T>& have, std::size_t first, ncclRedOp_t op, int ranks, const std::string& what) {
  for (std::size_t i = 0; i < have.size(); ++i) {
    const auto right = static_cast<T>(reduced(op, ranks, first + i));
    require(static_cast<float>(have[i]) == static_cast<float>(right),
            what + ", operator " + std::to_string(op) + ", element " + std::to_string(i) + ": " +
                std::to_string(static_cast<float>(have[i])) + " instead of " +
                std::to_string(static_cast<float>(right)));
  }
}

template <class T>
void reduce_all_ways(ncclComm_t comm, int rank, int ranks, ncclDataType_t type, std::size_t count) {
  const auto all = static_cast<std::size_t>(ranks);
  const vector_on_device<T> in(values<T>(rank, count * all)), out(count * all), part(count);
  for (const ncclRedOp_t op : {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg}) {
    ok(ncclAllReduce(in.get(), out.get(), count * all, type, op, comm, cudaStreamPerThread));
    expect(out.read(), 0, op, ranks, "all-reduce of type " + std::to_string(type));
    ok(ncclReduceScatter(in.get(), part.get(), count, type, op, comm, cudaStreamPerThread));
    expect(part.read(), count * static_cast<std::size_t>(rank), op, ranks,
           "reduce-scatter of type " + std::to_string(type));
  }
}

}  // namespace

TEST_CASE("all types are reduced by all operators") {
  on_ranks(3, [](ncclComm_t comm, int rank) {
    const auto by = [&](auto of_type, ncclDataType_t type) {
      reduce_all_ways<decltype(of_type)>(comm, rank, 3, type, 37);
    };
    by(std::int8_t{}, ncclInt8), by(std::uint8_t{}, ncclUint8), by(std::int32_t{}, ncclInt32);
    by(std::uint32_t{}, ncclUint32), by(std::int64_t{}, ncclInt64), by(std::uint64_t{}, ncclUint64);
    by(__half{}, ncclFloat16), by(float{}, ncclFloat32), by(double{}, ncclFloat64), by(__nv_bfloat16{}, ncclBfloat16);
    by(__nv_fp8_e4m3{}, ncclFloat8e4m3), by(__nv_fp8_e5m2{}, ncclFloat8e5m2);
  });
}

TEST_CASE("any length is reduced, in place too, and to any root") {
  static constexpr int ranks = 4;
  on_ranks(ranks, [](ncclComm_t comm, int rank) {
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{3}, std::size_t{1000}, std::size_t{300000}}) {
      const vector_on_device<float> data(values<float>(rank, count)), in(values<float>(rank, count));
      ok(ncclAllReduce(data.get(), data.get(), count, ncclFloat, ncclSum, comm, cudaStreamPerThread));
      expect(data.read(), 0, ncclSum, ranks, "all-reduce of " + std::to_string(count));
      const int root = static_cast<int>(count % ranks);
      const vector_on_device<float> out(count);
      ok(ncclReduce(in.get(), out.get(), count, ncclFloat, ncclMax, root, comm, cudaStreamPerThread));
      if (rank == root) expect(out.read(), 0, ncclMax, ranks, "reduce of " + std::to_string(count));
      ok(cudaStreamSynchronize(cudaStreamPerThread));
    }
  });
}

TEST_CASE("a scalar of each rank multiplies its input") {
  on_ranks(2, [](ncclComm_t comm, int rank) {
    const std::size_t count = 200000;
    const vector_on_device<float> in(values<float>(rank, count)), out(count), scalar(std::vector<float>{0.5f});
    float factor = rank == 0 ? 2.0f : 3.0f;
    ncclRedOp_t by_value{}, by_address{};
    ok(ncclRedOpCreatePreMulSum(&by_value, &factor, ncclFloat, ncclScalarHostImmediate, comm));
    ok(ncclRedOpCreatePreMulSum(&by_address, scalar.get(), ncclFloat, ncclScalarDevice, comm));
    ok(ncclAllReduce(in.get(), out.get(), count, ncclFloat, by_value, comm, cudaStreamPerThread));
    std::vector<float> have = out.read();
    for (std::size_t i = 0; i < count; ++i)
      require(have[i] == 2 * value<float>(0, i) + 3 * value<float>(1, i), "by value, element " + std::to_string(i));
    ok(ncclAllReduce(in.get(), out.get(), count, ncclFloat, by_address, comm, cudaStreamPerThread));
    have = out.read();
    for (std::size_t i = 0; i < count; ++i)
      require(have[i] == (value<float>(0, i) + value<float>(1, i)) / 2, "by address, element " + std::to_string(i));
    fails(ncclAllReduce(in.get(), out.get(), 1, ncclInt, by_value, comm, cudaStreamPerThread), ncclInvalidArgument,
          "ncclAllReduce: the operator was made for another data type");
    ok(ncclRedOpDestroy(by_value, comm));
    fails(ncclRedOpDestroy(by_value, comm), ncclInvalidArgument, "operator 5 is none of NCCL's");
    fails(ncclRedOpDestroy(ncclSum, comm), ncclInvalidArgument, "is not of ncclRedOpCreatePreMulSum");
  });
}

TEST_CASE("data goes from a root, to a root, and from all to all") {
  static constexpr int ranks = 3;
  on_ranks(ranks, [](ncclComm_t comm, int rank) {
    for (const std::size_t count : {std::size_t{5}, std::size_t{70001}}) {
      const auto all = static_cast<std::size_t>(ranks);
      const auto from = [&](int r) { return values<float>(r * 7, count * all); };
      const vector_on_device<float> in(from(rank)), out(count * all), part(count);
      const auto is = [&](const std::vector<float>& have, std::size_t at, int r, std::size_t first,
                          const std::string& what) {
        const std::vector<float> right = from(r);
        for (std::size_t i = 0; i < count; ++i)
          require(have[at + i] == right[first + i],
                  what + " of " + std::to_string(count) + ", element " + std::to_string(i));
      };
      for (int root = 0; root < ranks; ++root) {
        ok(ncclBroadcast(in.get(), part.get(), count, ncclFloat, root, comm, cudaStreamPerThread));
        is(part.read(), 0, root, 0, "broadcast");
        ok(ncclScatter(in.get(), part.get(), count, ncclFloat, root, comm, cudaStreamPerThread));
        is(part.read(), 0, root, count * static_cast<std::size_t>(rank), "scatter");
        ok(ncclGather(in.get(), out.get(), count, ncclFloat, root, comm, cudaStreamPerThread));
        const std::vector<float> have = out.read();
        for (int r = 0; rank == root && r < ranks; ++r) is(have, count * static_cast<std::size_t>(r), r, 0, "gather");
      }
      ok(ncclAlltoAll(in.get(), out.get(), count, ncclFloat, comm, cudaStreamPerThread));
      std::vector<float> have = out.read();
      for (int r = 0; r < ranks; ++r)
        is(have, count * static_cast<std::size_t>(r), r, count * static_cast<std::size_t>(rank), "all-to-all");
      // In place.
      const vector_on_device<float> own(have.size());
      ok(cudaMemcpy(own.get() + count * static_cast<std::size_t>(rank), in.get(), count * sizeof(float),
                    cudaMemcpyDeviceToDevice));
      ok(ncclAllGather(own.get() + count * static_cast<std::size_t>(rank), own.get(), count, ncclFloat, comm,
                       cudaStreamPerThread));
      have = own.read();
      for (int r = 0; r < ranks; ++r) is(have, count * static_cast<std::size_t>(r), r, 0, "all-gather");
      const vector_on_device<float> whole(from(rank));
      ok(ncclBcast(whole.get(), count, ncclFloat, 1, comm, cudaStreamPerThread));
      is(whole.read(), 0, 1, 0, "broadcast in place");
    }
  });
}

TEST_CASE("a group of sends and receives goes in any order, on several streams, beside a collective") {
  static constexpr int ranks = 3;
  on_ranks(ranks, [](ncclComm_t comm, int rank) {
    const std::size_t lengths[] = {1, 40000, 0, 13};
    cudaStream_t other = nullptr;
    ok(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    std::vector<std::unique_ptr<vector_on_device<int>>> sent, received;
    const auto message = [&](int from, int to, std::size_t n) {
      std::vector<int> made(lengths[n]);
      for (std::size_t i = 0; i < made.size(); ++i)
        made[i] = from * 1000000 + to * 100000 + static_cast<int>(n * 50000 + i);
      return made;
    };
    const vector_on_device<float> in(values<float>(rank, 100)), out(100);
    ok(ncclGroupStart());
    // Of the last rank first, and the collective at another place on each.
    for (int step = 0; step < ranks; ++step) {
      const int peer = (2 * ranks - 1 - step + rank) % ranks;
      if (step == rank) ok(ncclAllReduce(in.get(), out.get(), 100, ncclFloat, ncclSum, comm, other));
      for (std::size_t n = 0; n < 4; ++n) {
        sent.push_back(std::make_unique<vector_on_device<int>>(message(rank, peer, n)));
        received.push_back(std::make_unique<vector_on_device<int>>(lengths[n]));
        const cudaStream_t stream = n % 2 == 0 ? other : cudaStreamPerThread;
        ok(ncclRecv(received.back()->get(), lengths[n], ncclInt, peer, comm, stream));
        ok(ncclSend(sent.back()->get(), lengths[n], ncclInt, peer, comm, stream));
      }
    }
    ok(ncclGroupEnd());
    for (int step = 0; step < ranks; ++step) {
      const int peer = (2 * ranks - 1 - step + rank) % ranks;
      for (std::size_t n = 0; n < 4; ++n) {
        const std::size_t index = static_cast<std::size_t>(step) * 4 + n;
        require(received[index]->read(n % 2 == 0 ? other : cudaStreamPerThread) == message(peer, rank, n),
                "message " + std::to_string(n) + " of rank " + std::to_string(peer));
      }
    }
    expect(out.read(other), 0, ncclSum, ranks, "the collective");
    ok(cudaStreamDestroy(other));
  });
}

TEST_CASE("two ranks exchange messages of which the third knows nothing; more messages than a launch takes") {
  on_ranks(3, [](ncclComm_t comm, int rank) {
    if (rank == 2) return;
    const vector_on_device<int> in(std::vector<int>(300, rank + 1)), out(300);
    for (int round = 0; round < 2; ++round) {
      ok(ncclGroupStart());
      for (int i = 0; i < 150; ++i) {
        ok(ncclSend(in.get() + 2 * i, 2, ncclInt, 1 - rank, comm, cudaStreamPerThread));
        ok(ncclRecv(out.get() + 2 * i, 2, ncclInt, 1 - rank, comm, cudaStreamPerThread));
      }
      ok(ncclGroupEnd());
      require(out.read() == std::vector<int>(300, 2 - rank), "what came");
    }
  });
}

TEST_CASE("one thread gives all ranks their part, in a group") {
  static constexpr int ranks = 2;
  int devices = 0;
  ok(cudaGetDeviceCount(&devices));
  std::vector<ncclComm_t> comms(ranks);
  std::vector<int> list;
  for (int r = 0; r < ranks; ++r) list.push_back(r % devices);
  ok(ncclCommInitAll(comms.data(), ranks, list.data()));
  std::vector<std::unique_ptr<vector_on_device<float>>> data;
  std::vector<cudaStream_t> streams(ranks);
  for (int r = 0; r < ranks; ++r) {
    ok(cudaSetDevice(list[static_cast<std::size_t>(r)]));
    ok(cudaStreamCreate(&streams[static_cast<std::size_t>(r)]));
    data.push_back(std::make_unique<vector_on_device<float>>(values<float>(r, 1000)));
  }
  ok(ncclGroupStart());
  for (std::size_t r = 0; r < ranks; ++r)
    ok(ncclAllReduce(data[r]->get(), data[r]->get(), 1000, ncclFloat, ncclSum, comms[r], streams[r]));
  ok(ncclGroupEnd());
  for (std::size_t r = 0; r < ranks; ++r) {
    expect(data[r]->read(streams[r]), 0, ncclSum, ranks, "all-reduce by one thread");
    ok(cudaStreamDestroy(streams[r]));
  }
  data.clear();
  ok(ncclGroupStart());
  for (const ncclComm_t each : comms) ok(ncclCommDestroy(each));
  ok(ncclGroupEnd());
}

TEST_CASE("a captured collective runs again with each launch of its graph") {
  on_ranks(2, [](ncclComm_t comm, int rank) {
    const vector_on_device<float> in(values<float>(rank, 500)), out(500);
    cudaStream_t stream = nullptr;
    ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    ok(ncclAllReduce(in.get(), out.get(), 500, ncclFloat, ncclSum, comm, stream));
    cudaGraph_t graph = nullptr;
    ok(cudaStreamEndCapture(stream, &graph));
    cudaGraphExec_t ready = nullptr;
    ok(cudaGraphInstantiate(&ready, graph, 0));
    for (int launch = 0; launch < 3; ++launch) {
      ok(cudaMemsetAsync(out.get(), 0, 500 * sizeof(float), stream));
      ok(cudaGraphLaunch(ready, stream));
      expect(out.read(stream), 0, ncclSum, 2, "launch " + std::to_string(launch));
    }
    ok(cudaGraphExecDestroy(ready));
    ok(cudaGraphDestroy(graph));
    ok(cudaStreamDestroy(stream));
  });
}

TEST_CASE("wrong operations are refused with a sentence") {
  on_ranks(1, [](ncclComm_t comm, int) {
    const vector_on_device<int> data(4);
    fails(ncclBroadcast(data.get(), data.get(), 4, ncclInt, 1, comm, cudaStreamPerThread), ncclInvalidArgument,
          "ncclBroadcast: root 1 of 1 ranks: ranks are numbered from 0");
    fails(ncclSend(data.get(), 4, ncclInt, 1, comm, cudaStreamPerThread), ncclInvalidArgument, "peer 1 of 1 ranks");
    fails(ncclSend(data.get(), 4, ncclInt, 0, comm, cudaStreamPerThread), ncclInvalidArgument,
          "sends to itself have receives of the same sizes");
    fails(ncclAllReduce(data.get(), data.get(), 4, static_cast<ncclDataType_t>(13), ncclSum, comm, cudaStreamPerThread),
          ncclInvalidArgument, "data type 13 is none of NCCL's");
    fails(ncclAllReduce(data.get(), data.get(), 4, ncclInt, static_cast<ncclRedOp_t>(7), comm, cudaStreamPerThread),
          ncclInvalidArgument, "operator 7 is none of NCCL's");
    fails(ncclAllReduce(data.get(), data.get(), 4, ncclInt, ncclSum, nullptr, cudaStreamPerThread), ncclInvalidArgument,
          "ncclAllReduce: the communicator is null");
  });
}
