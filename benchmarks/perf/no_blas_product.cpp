#include "perf/matrix_products.hpp"

namespace perf {
namespace {

class missing_product final : public local_product {
 public:
  [[nodiscard]] std::string name() const override { return "cublaslt"; }
  [[nodiscard]] std::string why_not(const work&) const override {
    return "this program was built without cuBLASLt's headers: have cublasLt.h in the CUDA toolkit's include folder, and "
           "configure again";
  }
  void start(const work&, void*) override {}
};

}  // namespace

std::unique_ptr<local_product> make_blas_product() { return std::make_unique<missing_product>(); }

}  // namespace perf
