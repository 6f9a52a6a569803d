#include "launch/random_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <mutex>
#include <utility>
#include <vector>

namespace braze::launch {

struct RandomState::Generators {
  std::vector<std::pair<at::Generator, at::Tensor>> states;

  void add(at::Generator g) {
    std::lock_guard<std::mutex> lock(g.mutex());
    at::Tensor state = g.get_state();
    states.emplace_back(std::move(g), std::move(state));
  }
};

RandomState::RandomState() : generators_(std::make_unique<Generators>()) {
  generators_->add(at::detail::getDefaultCPUGenerator());
  // Without a GPU there is no implementation of guards, and no generator.
  if (at::globalContext().hasCUDA() && c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA)) {
    c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
    if (guard.deviceCount()) generators_->add(at::globalContext().defaultGenerator(guard.getDevice()));
  }
}

RandomState::~RandomState() = default;

void RandomState::restore() const {
  for (const auto& [generator, state] : generators_->states) {
    at::Generator g = generator;
    std::lock_guard<std::mutex> lock(g.mutex());
    g.set_state(state);
  }
}

}  // namespace braze::launch
