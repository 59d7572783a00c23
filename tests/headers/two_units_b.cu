#include "two_units.cuh"

void two_units::launch_from_b(int* sums) { devcomm::launch(add_broadcast<int>, {dim3(1), dim3(64)}, sums, 4); }

two_units::meet_kernel two_units::meet_of_b() { return meet<devcomm::block>; }
