/// Products by cuBLASLt, found at run time: `DEVCOMM_CUBLASLT_LIBRARY` names the file, else the loader's
/// `libcublasLt.so` of the toolkit's version.
#include "perf/matrix_products.hpp"

#include <devcomm/launch.hpp>

#include <cublasLt.h>
#include <dlfcn.h>

#include <cstdlib>
#include <map>
#include <stdexcept>
#include <tuple>

namespace perf {
namespace {

class blas_library {
 public:
  blas_library() {
    const char* const named = std::getenv("DEVCOMM_CUBLASLT_LIBRARY");
    const std::string path = named != nullptr ? named : "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
    void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      why_not_ = std::string("cuBLASLt cannot be loaded: ") + dlerror();
      return;
    }
    const auto load = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
      if (function == nullptr) why_not_ = path + " has no " + name;
    };
    load(create, "cublasLtCreate");
    load(create_description, "cublasLtMatmulDescCreate");
    load(create_layout, "cublasLtMatrixLayoutCreate");
    load(create_preference, "cublasLtMatmulPreferenceCreate");
    load(set_preference, "cublasLtMatmulPreferenceSetAttribute");
    load(find_algorithm, "cublasLtMatmulAlgoGetHeuristic");
    load(multiply, "cublasLtMatmul");
  }
  [[nodiscard]] const std::string& why_not() const { return why_not_; }

  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtMatmulDescCreate) create_description = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) create_layout = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) find_algorithm = nullptr;
  decltype(&cublasLtMatmul) multiply = nullptr;

 private:
  std::string why_not_;
};

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string(call) + " failed: " + std::to_string(status));
}

/// Objects of cuBLASLt live as long as the program.
class blas_product final : public local_product {
 public:
  [[nodiscard]] std::string name() const override { return "cublaslt"; }
  [[nodiscard]] std::string why_not(const work&) const override { return library().why_not(); }
  void start(const work& what, void* c) override {
    const plan& made = plan_of(problem_of(what));
    const float one = 1, zero = 0;
    const auto* const a = static_cast<const std::byte*>(what.input);
    check(library().multiply(handle_, made.description, &one, a + product_places(what).b, made.b, a, made.a, &zero, c,
                             made.c, c, made.c, &made.best.algo, workspace_, workspace_bytes, what.stream),
          "cublasLtMatmul");
  }

 private:
  static constexpr std::size_t workspace_bytes = 32 << 20;
  struct plan {
    cublasLtMatmulDesc_t description = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
    cublasLtMatmulHeuristicResult_t best{};
  };

  static const blas_library& library() {
    static const blas_library loaded;
    return loaded;
  }
  /// Its matrices are column-major: it computes the transposed C, of B times A.
  const plan& plan_of(const devcomm::gemm::problem_shape& problem) {
    const auto [m, n, k] = problem;
    plan& made = plans_[{m, n, k}];
    if (made.description != nullptr) return made;
    if (handle_ == nullptr) {
      check(library().create(&handle_), "cublasLtCreate");
      devcomm::check_cuda(cudaMalloc(&workspace_, workspace_bytes), "cudaMalloc");
    }
    check(library().create_description(&made.description, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    const auto layout = [&](cublasLtMatrixLayout_t& of, std::uint64_t rows, std::uint64_t columns) {
      check(library().create_layout(&of, CUDA_R_16BF, rows, columns, static_cast<std::int64_t>(rows)),
            "cublasLtMatrixLayoutCreate");
    };
    layout(made.b, n, k);
    layout(made.a, k, m);
    layout(made.c, n, m);
    cublasLtMatmulPreference_t preference = nullptr;
    check(library().create_preference(&preference), "cublasLtMatmulPreferenceCreate");
    check(library().set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
                                   sizeof workspace_bytes),
          "cublasLtMatmulPreferenceSetAttribute");
    int found = 0;
    check(library().find_algorithm(handle_, made.description, made.b, made.a, made.c, made.c, preference, 1, &made.best,
                                   &found),
          "cublasLtMatmulAlgoGetHeuristic");
    if (found == 0) throw std::runtime_error("cuBLASLt has no algorithm for this product");
    return made;
  }

  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, plan> plans_;
};

}  // namespace

std::unique_ptr<local_product> make_blas_product() { return std::make_unique<blas_product>(); }

}  // namespace perf
