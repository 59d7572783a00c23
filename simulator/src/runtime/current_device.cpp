#include "runtime/current_device.hpp"

namespace devcomm::simulator::detail {
namespace {

__thread int device_of_thread = 0;

}  // namespace

int current_device() { return device_of_thread; }
void make_device_current(int device) { device_of_thread = device; }

}  // namespace devcomm::simulator::detail
