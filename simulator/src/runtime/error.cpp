#include "runtime/host_thread.hpp"

#include <devcomm/simulator/detail/launch.hpp>

#include "runtime/simulation.hpp"

#include <atomic>

namespace devcomm::simulator::detail {
namespace {

__thread cudaError_t last_error = cudaSuccess;

// Of launches by <<<>>>, whose errors only cudaGetLastError and cudaPeekAtLastError return.
__thread unsigned refused_here = 0;
std::atomic<unsigned> refused_launches{0};
std::atomic<cudaError_t> last_refusal{cudaSuccess};

void saw_refusals() {
  refused_launches -= refused_here;
  refused_here = 0;
}

struct error_text {
  cudaError_t code;
  const char* name;
  const char* text;
};

constexpr error_text texts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidPitchValue, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources", "too many resources requested for launch"},
    {cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout",
     "the launch timed out and was terminated (simulator: deadlock; devcomm::simulator::last_failure() has who waits "
     "for whom)"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
    {cudaErrorPeerAccessNotEnabled, "cudaErrorPeerAccessNotEnabled", "peer access has not been enabled"},
    {cudaErrorAssert, "cudaErrorAssert",
     "device-side assert triggered (simulator: devcomm::simulator::last_failure() has the text)"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure",
     "unspecified launch failure (simulator: devcomm::simulator::last_failure() has the text)"},
    {cudaErrorCooperativeLaunchTooLarge, "cudaErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched", "capture was not initiated in this stream"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorInvalidClusterSize, "cudaErrorInvalidClusterSize", "cluster misconfiguration"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const error_text* find(cudaError_t error) {
  for (const error_text& t : texts) {
    if (t.code == error) return &t;
  }
  return nullptr;
}

}  // namespace

cudaError_t keep(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

void note_refusal(cudaError_t error) {
  ++refused_here;
  ++refused_launches;
  last_refusal = error;
}

cudaError_t lasting_error() { return static_cast<cudaError_t>(the_engine().lasting_error(current_device())); }

const char* unseen_refusal() { return refused_launches != 0 ? cudaGetErrorName(last_refusal) : nullptr; }

extern "C" {

cudaError_t cudaGetLastError() {
  saw_refusals();
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  const engine_guard hold;
  const cudaError_t lasting = lasting_error();
  return lasting != cudaSuccess ? lasting : error;
}
cudaError_t cudaPeekAtLastError() {
  saw_refusals();
  const engine_guard hold;
  const cudaError_t lasting = lasting_error();
  return lasting != cudaSuccess ? lasting : last_error;
}
const char* cudaGetErrorName(cudaError_t error) {
  const error_text* t = find(error);
  return t != nullptr ? t->name : "unrecognized error code";
}
const char* cudaGetErrorString(cudaError_t error) {
  const error_text* t = find(error);
  return t != nullptr ? t->text : "unrecognized error code";
}
}

}  // namespace devcomm::simulator::detail
