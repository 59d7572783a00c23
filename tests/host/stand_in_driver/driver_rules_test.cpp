// The stand-in itself: each of its rules has a case that breaks it.
#include "stand_in.hpp"

#include <cuda.h>

#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <string>

using namespace devcomm_test;

namespace {

constexpr std::size_t granule = 256 << 10;

template <class Function>
void load(Function& function, const char* name) {
  function = reinterpret_cast<Function>(stand_in().find(name));
  REQUIRE(function != nullptr);
}

/// The functions, started.
struct functions {
  functions() {
    decltype(&cuInit) init = nullptr;
    load(init, "cuInit");
    REQUIRE(init(0) == CUDA_SUCCESS);
    load(create, "cuMemCreate");
    load(release, "cuMemRelease");
    load(reserve, "cuMemAddressReserve");
    load(free, "cuMemAddressFree");
    load(map, "cuMemMap");
    load(unmap, "cuMemUnmap");
    load(set_access, "cuMemSetAccess");
    load(create_multicast, "cuMulticastCreate");
    load(add, "cuMulticastAddDevice");
    load(bind, "cuMulticastBindMem");
    load(unbind, "cuMulticastUnbind");
  }

  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) free = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  decltype(&cuMulticastCreate) create_multicast = nullptr;
  decltype(&cuMulticastAddDevice) add = nullptr;
  decltype(&cuMulticastBindMem) bind = nullptr;
  decltype(&cuMulticastUnbind) unbind = nullptr;
};

/// What was noted since the last call.
std::string news() {
  static std::size_t seen = 0;
  const std::string all = stand_in().complaints();
  const std::string since = all.substr(seen);
  seen = all.size();
  return since;
}

/// That the call failed, and was noted with `sentence`.
void check_broken(CUresult code, const std::string& sentence) {
  const std::string text = news();
  CAPTURE(sentence, text);
  CHECK(code != CUDA_SUCCESS);
  CHECK(text.find(sentence) != std::string::npos);
}

CUmemGenericAllocationHandle memory_of(const functions& f, int device, unsigned types = 1) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = device;
  wanted.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(types);
  CUmemGenericAllocationHandle handle = 0;
  REQUIRE(f.create(&handle, 2 * granule, &wanted, 0) == CUDA_SUCCESS);
  return handle;
}

}  // namespace

TEST_CASE("the stand-in refuses each call that the driver would block in, or that breaks its rules, and says why") {
  const functions f;
  const CUmulticastObjectProp wanted{2, granule, 1, 0};
  CUmemGenericAllocationHandle object = 0;
  CUmulticastObjectProp odd = wanted;
  odd.size = granule / 2;
  check_broken(f.create_multicast(&object, &odd), "no multiple of the granularity");
  odd = wanted;
  odd.flags = 1;
  check_broken(f.create_multicast(&object, &odd), "properties that make no sense");
  REQUIRE(f.create_multicast(&object, &wanted) == CUDA_SUCCESS);
  const CUmemGenericAllocationHandle first = memory_of(f, 0);
  const CUmemGenericAllocationHandle second = memory_of(f, 1);
  const CUmemGenericAllocationHandle other = memory_of(f, 2);
  const CUmemGenericAllocationHandle unshared = memory_of(f, 1, 0);
  CUdeviceptr at = 0;
  REQUIRE(f.reserve(&at, 4 * granule, 0, 0, 0) == CUDA_SUCCESS);
  const CUdeviceptr place = (at + granule - 1) / granule * granule;
  CHECK(place != at);

  REQUIRE(f.add(object, 0) == CUDA_SUCCESS);
  check_broken(f.add(object, 0), "was added before");
  check_broken(f.add(first, 1), "no multicast object");
  check_broken(f.bind(object, 0, first, 0, granule, 0), "before all devices were added");
  check_broken(f.map(place, granule, 0, object, 0), "before all devices were added");
  REQUIRE(f.add(object, 1) == CUDA_SUCCESS);
  check_broken(f.add(object, 2), "more devices than the object is for");

  check_broken(f.bind(object, 0, first, 0, granule / 2, 0), "no multiples of the granularity");
  check_broken(f.bind(object, 0, first, 0, 2 * granule, 0), "past the end");
  check_broken(f.bind(object, 0, other, 0, granule, 0), "a device that was not added");
  check_broken(f.bind(object, 0, unshared, 0, granule, 0), "cannot be shared");
  check_broken(f.bind(object, 0, object, 0, granule, 0), "no memory");
  REQUIRE(f.bind(object, 0, first, 0, granule, 0) == CUDA_SUCCESS);
  check_broken(f.bind(object, 0, first, 0, granule, 0), "second memory of one device");

  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  check_broken(f.map(at, granule, 0, object, 0), "no multiples of the granularity");
  REQUIRE(f.map(place, granule, 0, object, 0) == CUDA_SUCCESS);
  check_broken(f.map(place, granule, 0, first, 0), "where something is mapped");
  check_broken(f.set_access(place, granule, &access, 1), "not every device has bound");
  REQUIRE(f.bind(object, 0, second, 0, granule, 0) == CUDA_SUCCESS);
  CHECK(f.set_access(place, granule, &access, 1) == CUDA_SUCCESS);

  check_broken(f.unbind(object, 0, 0, 2 * granule), "has not bound so");
  check_broken(f.unmap(place, 2 * granule), "not mapped so");
  check_broken(f.free(at, granule), "no reservation");
  check_broken(f.release(second), "bound to a multicast object");
  check_broken(f.release(object), "with memory bound to it");
  CHECK(f.unmap(place, granule) == CUDA_SUCCESS);
  CHECK(f.map(place, granule, 0, first, 0) == CUDA_SUCCESS);
  check_broken(f.free(at, 4 * granule), "in which memory is mapped");
  check_broken(f.release(first), "that is mapped");
  CHECK(f.release(other) == CUDA_SUCCESS);
  check_broken(f.release(other), "what is no handle");
}

TEST_CASE("the stand-in counts what is held, and fails the call that it is told to") {
  const functions f;
  const int before = stand_in().held().memory;
  stand_in().fail("cuMemCreate", 2);
  const CUmemGenericAllocationHandle first = memory_of(f, 0);
  CHECK(stand_in().held().memory == before + 1);
  CHECK_THROWS(require_nothing_held("while memory is there"));
  CUmemGenericAllocationHandle second = 0;
  const CUmemAllocationProp wanted{};
  CHECK(f.create(&second, granule, &wanted, 0) == CUDA_ERROR_NOT_PERMITTED);
  CHECK(f.create(&second, granule, &wanted, 0) == CUDA_SUCCESS);
  CHECK(stand_in().calls("cuMemCreate") == 3);
  stand_in().fail("cuMemRelease", 1);
  CHECK(f.release(first) == CUDA_ERROR_NOT_PERMITTED);
  CHECK(f.release(second) == CUDA_SUCCESS);
  CHECK(stand_in().held().memory == before);
}
