#include "memory/symmetric_memory_state.hpp"

#include <utility>

namespace devcomm::host {

void symmetric_memory::destroyer::operator()(state* s) const noexcept {
  if (s->made_in.here()) delete s;
}

symmetric_memory::symmetric_memory(std::unique_ptr<state, destroyer> s) : state_(std::move(s)) {}
symmetric_memory::symmetric_memory(symmetric_memory&&) noexcept = default;
symmetric_memory& symmetric_memory::operator=(symmetric_memory&&) noexcept = default;
symmetric_memory::~symmetric_memory() = default;

const devcomm::window& symmetric_memory::window() const& noexcept { return state_->window; }
void* symmetric_memory::data() const& noexcept { return state_->window.local; }
std::size_t symmetric_memory::bytes() const noexcept { return state_->bytes; }
const std::string& symmetric_memory::name() const noexcept { return state_->name; }
const std::string& symmetric_memory::handle_type() const noexcept { return state_->handle_type; }

const capability& symmetric_memory::multimem() const noexcept { return state_->multimem; }

}  // namespace devcomm::host
