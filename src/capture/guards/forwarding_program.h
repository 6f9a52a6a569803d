// Guards that are checked by another program, with something done besides.
#pragma once
#include <memory>
#include <utility>

#include "capture/guards/guards.h"

namespace braze::capture {

class ForwardingProgram : public GuardProgram {
 public:
  explicit ForwardingProgram(std::unique_ptr<GuardProgram> program) : program_(std::move(program)) {}

  std::string failure(const GuardValues& of) const override { return program_->failure(of); }
  std::string ended() const override { return program_->ended(); }
  Place ended_place() const override { return program_->ended_place(); }
  bool wants_tensor(const GuardValues& of) const override { return program_->wants_tensor(of); }
  Place other_object(const GuardValues& of) const override { return program_->other_object(of); }
  const std::unordered_set<PyObject*>& mortals() const override { return program_->mortals(); }
  void when_over(std::function<void()> then) override { program_->when_over(std::move(then)); }
  bool is_over() const override { return program_->is_over(); }
  size_t num_watched() const override { return program_->num_watched(); }
  size_t num_steps() const override { return program_->num_steps(); }
  int traverse(visitproc visit, void* arg) const override { return program_->traverse(visit, arg); }

 protected:
  const std::unique_ptr<GuardProgram> program_;
};

}  // namespace braze::capture
