/// Tensor maps, and copies of their boxes.
#include <devcomm/simulator/detail/execution.hpp>
#include <devcomm/simulator/detail/tensor_map.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace devcomm::simulator::detail {
namespace {

constexpr uint32_t max_dimensions = 5;
constexpr uint64_t is_a_map = 0x6d61702d746e7364;
constexpr int32_t not_supported = 801;  // CUDA_ERROR_NOT_SUPPORTED
constexpr int32_t invalid = 1;          // CUDA_ERROR_INVALID_VALUE

/// What the simulator keeps in the 128 bytes of a `CUtensorMap`.
struct tensor_map {
  uint64_t mark;
  uint64_t base;
  uint64_t strides[max_dimensions - 1];  ///< bytes, of all dimensions but the innermost
  uint32_t last[max_dimensions];         ///< index of the last element
  uint16_t box[max_dimensions];
  uint8_t rank;
  uint8_t type;
  uint8_t element;  ///< bytes
  uint8_t swizzle;
};
static_assert(sizeof(tensor_map) <= 128);

/// Bytes of an element of each `CUtensorMapDataType`; packed ones are not supported.
constexpr uint8_t element_bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
constexpr uint32_t swizzle_bytes[] = {0, 32, 64, 128};

tensor_map map_at(const void* at) {
  tensor_map map;
  std::memcpy(&map, at, sizeof map);
  if (map.mark != is_a_map) fail_misuse("there is no tensor map at that address: make it by cuTensorMapEncodeTiled");
  return map;
}

/// Where 16 bytes of the box are in shared memory: their place in a row of the swizzle's width is mixed with the row's.
char* swizzled(char* at, uint32_t width) {
  if (width == 0) return at;
  const auto address = reinterpret_cast<uintptr_t>(at);
  const uintptr_t mask = width / 16 - 1;
  return reinterpret_cast<char*>(address ^ (address >> 7 & mask) << 4);
}

class box_copy {
 public:
  box_copy(const tensor_map& map, const int* coordinates, void* shared, bool loads)
      : map_(map), coordinates_(coordinates), shared_(static_cast<char*>(shared)), loads_(loads) {
    add_rows(map.rank - 1u, reinterpret_cast<char*>(map.base), true);
  }
  [[nodiscard]] const std::vector<copy_chunk>& chunks() const { return chunks_; }

 private:
  /// All rows of dimension `d` and those inside of it, in the order in which they are in shared memory.
  void add_rows(uint32_t d, char* global, bool inside) {
    if (d == 0) return add_row(global, inside);
    for (uint32_t i = 0; i < map_.box[d]; ++i) {
      const int64_t index = coordinates_[d] + int64_t{i};
      const bool in = index >= 0 && index <= int64_t{map_.last[d]};
      add_rows(d - 1, in ? global + static_cast<uint64_t>(index) * map_.strides[d - 1] : global, inside && in);
    }
  }
  void add_row(char* global, bool inside) {
    const uint32_t row = uint32_t{map_.box[0]} * map_.element;
    const int64_t from = int64_t{coordinates_[0]} * map_.element;
    const int64_t end = (int64_t{map_.last[0]} + 1) * map_.element;
    const uint32_t width = swizzle_bytes[map_.swizzle];
    const uint32_t part = width == 0 ? row : 16;
    for (uint32_t at = 0; at < row; at += part) {
      // Of these bytes, those from `first` to `past` are in the tensor.
      const int64_t first = std::clamp<int64_t>(-(from + at), 0, part);
      const int64_t past = inside ? std::clamp<int64_t>(end - (from + at), first, part) : first;
      char* const to = swizzled(shared_ + at, width);
      add(to, nullptr, first);
      add(to + first, global + from + at + first, past - first);
      add(to + past, nullptr, part - past);
    }
    shared_ += row;
  }
  void add(char* shared, char* global, int64_t bytes) {
    if (bytes == 0) return;
    const auto size = static_cast<size_t>(bytes);
    chunks_.push_back(loads_ ? copy_chunk{shared, global, size} : copy_chunk{global, shared, size});
  }

  const tensor_map& map_;
  const int* coordinates_;
  char* shared_;
  bool loads_;
  std::vector<copy_chunk> chunks_;
};

bool is_valid(const tensor_map& map, const uint64_t* sizes) {
  constexpr uint64_t max_size = uint64_t{1} << 32;
  constexpr uint64_t max_stride = uint64_t{1} << 40;
  if (map.base % 16 != 0) return false;
  for (uint32_t d = 0; d < map.rank; ++d) {
    if (sizes[d] == 0 || sizes[d] > max_size || map.box[d] == 0 || map.box[d] > 256) return false;
    if (d > 0 && (map.strides[d - 1] % 16 != 0 || map.strides[d - 1] >= max_stride)) return false;
  }
  const uint32_t row = uint32_t{map.box[0]} * map.element;
  return row % 16 == 0 && (map.swizzle == 0 || row <= swizzle_bytes[map.swizzle]);
}

}  // namespace

uint32_t type_of_tensor(const void* map) { return map_at(map).type; }

void copy_tensor(const char* instruction, const void* at, const int* coordinates, int rank, void* shared, bool loads,
                 copy_reduction reduces, void* barrier) {
  const tensor_map map = map_at(at);
  if (map.rank != rank)
    fail_misuse(("the tensor of the map has " + std::to_string(map.rank) + " dimensions, and the instruction " +
                 std::to_string(rank))
                    .c_str());
  // As for GPUs: the pattern of a swizzle begins again every 8 rows.
  const uintptr_t alignment = map.swizzle == 0 ? 128 : swizzle_bytes[map.swizzle] * 8u;
  if (reinterpret_cast<uintptr_t>(shared) % alignment != 0) {
    fail_misuse(
        ("the box of a tensor copy lies in shared memory at a multiple of " + std::to_string(alignment) + " bytes")
            .c_str());
  }
  std::vector<copy_chunk> chunks = box_copy(map, coordinates, shared, loads).chunks();
  copy_bulk(instruction, chunks.data(), chunks.size(), reduces, barrier);
}

}  // namespace devcomm::simulator::detail

// With the types of the driver's header as numbers, since there may be none.
extern "C" int32_t cuTensorMapEncodeTiled(void* to, int32_t type, uint32_t rank, void* address, const uint64_t* sizes,
                                          const uint64_t* strides, const uint32_t* box, const uint32_t* steps,
                                          int32_t interleave, int32_t swizzle, int32_t /*promotion*/, int32_t fill) {
  using namespace devcomm::simulator::detail;  // NOLINT(google-build-using-namespace)
  if (to == nullptr || rank == 0 || rank > max_dimensions || type < 0 || swizzle < 0) return invalid;
  if (interleave != 0 || fill != 0 || swizzle > 3 || type >= static_cast<int32_t>(std::size(element_bytes)))
    return not_supported;
  tensor_map map{};
  map.mark = is_a_map;
  map.base = reinterpret_cast<uint64_t>(address);
  map.rank = static_cast<uint8_t>(rank);
  map.type = static_cast<uint8_t>(type);
  map.element = element_bytes[type];
  map.swizzle = static_cast<uint8_t>(swizzle);
  for (uint32_t d = 0; d < rank; ++d) {
    if (d > 0 && steps[d] != 1) return not_supported;
    map.last[d] = static_cast<uint32_t>(sizes[d] - 1);
    map.box[d] = static_cast<uint16_t>(std::min(box[d], 257u));
    if (d > 0) map.strides[d - 1] = strides[d - 1];
  }
  if (!is_valid(map, sizes)) return invalid;
  std::memset(to, 0, 128);
  std::memcpy(to, &map, sizeof map);
  return 0;
}
