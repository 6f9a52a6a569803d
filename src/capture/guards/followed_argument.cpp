#include "capture/guards/followed_argument.h"

#include "capture/guards/forwarding_program.h"
#include "capture/guards/guard_eval.h"

namespace braze::capture {
namespace {

constexpr size_t kWorthIt = 16;                            // sources that hang off it
constexpr int kPatience = 16;                              // checks with the same object before it is followed
constexpr int kMostObjects = 1000;                         // that came and went
constexpr size_t kTablesToJudge = 8, kChecksPerTable = 8;  // of an object whose contents change in most calls

class FollowedArgument final : public ForwardingProgram {
 public:
  FollowedArgument(std::unique_ptr<GuardProgram> program, std::function<std::unique_ptr<FollowingProgram>()> make,
                   std::shared_ptr<const Sources> sources, const Source& root, size_t num_locals_plus)
      : ForwardingProgram(std::move(program)),
        make_(std::move(make)),
        sources_(std::move(sources)),
        root_(root),
        num_locals_plus_(num_locals_plus) {}

  bool check(PyObject* const* slots, GuardValues& out) override {
    // A check may run code that checks again, which may end the following program.
    std::shared_ptr<FollowingProgram> now = follows_ ? following_ : nullptr;
    if (now && now->check(slots, out)) {
      ++checks_;
      if (now->num_tables() >= kTablesToJudge && checks_ < now->num_tables() * kChecksPerTable) give_up();
      return true;
    }
    if (!program_->check(slots, out)) return false;
    if (now) follows_ = false, same_ = 0;  // they hold with another object
    if (!given_up_ && !is_over()) look(slots);
    return true;
  }

  size_t num_watched() const override { return in_use().num_watched(); }
  size_t num_steps() const override { return in_use().num_steps(); }
  int traverse(visitproc visit, void* arg) const override {
    if (following_)
      if (int result = following_->traverse(visit, arg)) return result;
    return ForwardingProgram::traverse(visit, arg);
  }

 private:
  const GuardProgram& in_use() const { return follows_ ? *following_ : *program_; }

  // Held: the next step may run code that drops it.
  Ref value(const Source& s, PyObject* const* slots) const {
    Ref base = s.base.valid() ? value((*sources_)[s.base], slots) : Ref();
    return s.base.valid() && !base ? Ref() : Ref::borrow(step(s, base.get(), slots, num_locals_plus_));
  }

  void look(PyObject* const* slots) {
    const Ref object = value(root_, slots);
    if (object.get() != last_) {
      last_ = object.get();
      same_ = 0;
      if (++objects_ > kMostObjects) give_up();
      return;
    }
    if (!object || ++same_ < kPatience) return;
    if (!following_) following_ = make_();
    follows_ = following_->follow(object.get());
    if (!follows_) give_up();
  }

  void give_up() {
    given_up_ = true;
    follows_ = false;
    following_.reset();
  }

  std::function<std::unique_ptr<FollowingProgram>()> make_;
  std::shared_ptr<const Sources> sources_;
  const Source& root_;
  size_t num_locals_plus_;

  std::shared_ptr<FollowingProgram> following_;
  bool follows_ = false, given_up_ = false;
  size_t checks_ = 0;               // that it passed
  const PyObject* last_ = nullptr;  // at the root, by its address alone
  int same_ = 0, objects_ = 0;
};

}  // namespace

const Source* argument_to_follow(const CheckOrder& order) {
  auto has_weak_references = [&](const CheckOrder::Node& n) {
    for (uint32_t g = n.guards_begin; g < n.guards_end; ++g) {
      const Guard& guard = *order.early[g];
      if (guard.kind != GuardKind::TypeIs) continue;
      auto* type = reinterpret_cast<PyTypeObject*>(guard.object.get());
      return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) && PyType_SUPPORTS_WEAKREFS(type);
    }
    return false;
  };
  std::vector<size_t> below(order.num_all);  // by register
  const Source* best = nullptr;
  size_t most = kWorthIt;
  // A base comes before what hangs off it.
  for (auto n = order.moving.rbegin(); n != order.moving.rend(); ++n) {
    if (n->base != CheckOrder::kNone) below[n->base] += 1 + below[n->reg];
    if (below[n->reg] < most || !has_weak_references(*n)) continue;
    best = n->source;
    most = below[n->reg];
  }
  return best;
}

std::unique_ptr<GuardProgram> followed(std::unique_ptr<GuardProgram> program,
                                       std::function<std::unique_ptr<FollowingProgram>()> make,
                                       std::shared_ptr<const Sources> sources, const Source& root,
                                       size_t num_locals_plus) {
  return std::make_unique<FollowedArgument>(std::move(program), std::move(make), std::move(sources), root,
                                            num_locals_plus);
}

}  // namespace braze::capture
