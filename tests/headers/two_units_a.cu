#include "two_units.cuh"

void two_units::launch_from_a(int* sums) { devcomm::launch(add_broadcast<int>, {dim3(1), dim3(64)}, sums, 3); }

two_units::meet_kernel two_units::meet_of_a() { return meet<devcomm::block>; }
