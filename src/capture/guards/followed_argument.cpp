#include "capture/guards/followed_argument.h"

#include "capture/guards/guard_eval.h"

namespace braze::capture {
namespace {

constexpr size_t kWorthIt = 16;                            // sources that hang off it
constexpr int kPatience = 16;                              // checks with the same object before it is followed
constexpr int kMostObjects = 1000;                         // that came and went
constexpr size_t kTablesToJudge = 8, kChecksPerTable = 8;  // of an object whose contents change in most calls

class FollowedArgument final : public GuardProgram {
 public:
  FollowedArgument(std::unique_ptr<GuardProgram> program, std::function<std::unique_ptr<FollowingProgram>()> make,
                   std::shared_ptr<const Sources> sources, SourceId root, size_t num_locals_plus)
      : program_(std::move(program)),
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

  std::string failure(const GuardValues& of) const override { return program_->failure(of); }
  std::string ended() const override { return program_->ended(); }
  Place ended_place() const override { return program_->ended_place(); }
  bool wants_tensor(const GuardValues& of) const override { return program_->wants_tensor(of); }
  Place other_object(const GuardValues& of) const override { return program_->other_object(of); }
  const std::unordered_set<PyObject*>& mortals() const override { return program_->mortals(); }
  void when_over(std::function<void()> then) override { program_->when_over(std::move(then)); }
  bool is_over() const override { return program_->is_over(); }
  size_t num_watched() const override { return in_use().num_watched(); }
  size_t num_steps() const override { return in_use().num_steps(); }
  int traverse(visitproc visit, void* arg) const override {
    if (following_)
      if (int result = following_->traverse(visit, arg)) return result;
    return program_->traverse(visit, arg);
  }

 private:
  const GuardProgram& in_use() const { return follows_ ? *following_ : *program_; }

  PyObject* at_root(SourceId id, PyObject* const* slots) const {
    const Source& s = (*sources_)[id];
    PyObject* base = s.base.valid() ? at_root(s.base, slots) : nullptr;
    return s.base.valid() && !base ? nullptr : step(s, base, slots, num_locals_plus_);
  }

  void look(PyObject* const* slots) {
    PyObject* object = at_root(root_, slots);
    if (object != last_) {
      last_ = object;
      same_ = 0;
      if (++objects_ > kMostObjects) give_up();
      return;
    }
    if (!object || ++same_ < kPatience) return;
    if (!following_) following_ = make_();
    follows_ = following_->follow(object);
    if (!follows_) give_up();
  }

  void give_up() {
    given_up_ = true;
    follows_ = false;
    following_.reset();
  }

  std::unique_ptr<GuardProgram> program_;
  std::function<std::unique_ptr<FollowingProgram>()> make_;
  std::shared_ptr<const Sources> sources_;
  SourceId root_;
  size_t num_locals_plus_;

  std::shared_ptr<FollowingProgram> following_;
  bool follows_ = false, given_up_ = false;
  size_t checks_ = 0;               // that it passed
  const PyObject* last_ = nullptr;  // at the root, by its address alone
  int same_ = 0, objects_ = 0;
};

}  // namespace

SourceId argument_to_follow(const Sources& sources, const std::vector<Guard>& guards,
                            const std::vector<SourceId>& wanted) {
  std::vector<char> needed(sources.size()), watched(sources.size()), instance(sources.size());
  auto need = [&](SourceId s) {
    for (; s.valid() && !needed[s.index]; s = sources[s].base) needed[s.index] = 1;
  };
  for (const Guard& g : guards) {
    need(g.source);
    need(g.other);
    for (SourceId s : g.group) need(s);
    if (g.kind == GuardKind::Identity) watched[g.source.index] = 1;
    if (g.kind != GuardKind::TypeIs) continue;
    auto* type = reinterpret_cast<PyTypeObject*>(g.object.get());
    instance[g.source.index] = (type->tp_flags & Py_TPFLAGS_HEAPTYPE) && PyType_SUPPORTS_WEAKREFS(type);
  }
  for (SourceId s : wanted) need(s);
  // A base has a smaller id than what hangs off it.
  for (size_t i = 0; i < sources.size(); ++i) {
    const Source& s = sources[SourceId(i)];
    watched[i] |= s.kind == SourceKind::Const || (s.base.valid() && watched[s.base.index]);
  }
  std::vector<size_t> below(sources.size());
  SourceId best;
  for (size_t i = sources.size(); i-- > 0;) {
    const Source& s = sources[SourceId(i)];
    if (!needed[i] || watched[i]) continue;
    if (s.base.valid()) below[s.base.index] += 1 + below[i];
    if (instance[i] && below[i] >= std::max(kWorthIt, best.valid() ? below[best.index] : 0)) best = SourceId(i);
  }
  return best;
}

std::unique_ptr<GuardProgram> followed(std::unique_ptr<GuardProgram> program,
                                       std::function<std::unique_ptr<FollowingProgram>()> make,
                                       std::shared_ptr<const Sources> sources, SourceId root, size_t num_locals_plus) {
  return std::make_unique<FollowedArgument>(std::move(program), std::move(make), std::move(sources), root,
                                            num_locals_plus);
}

}  // namespace braze::capture
