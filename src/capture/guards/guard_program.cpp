#include "base/check.h"
#include "base/strict.h"
#include "capture/guards/check_order.h"
#include "capture/guards/death_watch.h"
#include "capture/guards/followed_argument.h"
#include "capture/guards/group_guards.h"
#include "capture/guards/guard_eval.h"
#include "capture/guards/size_check.h"
#include "capture/guards/verified_program.h"
#include "capture/guards/watch_table.h"
#include "trace/global_state.h"

namespace braze::capture {

namespace {

constexpr uint32_t kNone = CheckOrder::kNone;

// A table that a check uses or the program publishes. Plain counts: under the GIL.
class TableRef {
 public:
  TableRef() = default;
  explicit TableRef(WatchTable* t) : table_(t) {
    if (t) ++t->users;
  }
  TableRef(const TableRef& o) : TableRef(o.table_) {}
  TableRef& operator=(TableRef o) noexcept {
    std::swap(table_, o.table_);
    return *this;
  }
  ~TableRef() {
    if (table_ && --table_->users == 0) delete table_;
  }
  WatchTable* operator->() const { return table_; }
  WatchTable* get() const { return table_; }
  explicit operator bool() const { return table_ != nullptr; }

 private:
  WatchTable* table_ = nullptr;
};

class Program final : public FollowingProgram {
 public:
  Program(std::shared_ptr<const Sources> sources, std::vector<Guard> guards, const std::vector<SourceId>& wanted,
          uint64_t global_state, size_t num_locals_plus, SizeGuards sizes, const Source* follow = nullptr)
      : sources_(std::move(sources)),
        guards_(std::move(guards)),
        global_state_(global_state),
        num_locals_plus_(num_locals_plus),
        tensor_at_(sources_->size()),
        order_(*sources_, guards_, wanted, sizes.places, follow),
        sizes_(std::move(sizes), order_.places) {
    for (const Guard& g : guards_)
      if (g.kind == GuardKind::Tensor) tensor_at_[g.source.index] = 1;
    for (const CheckOrder::Group& g : order_.apart)
      apart_.emplace_back(g.guard, StoragesApart(g.registers, static_cast<size_t>(g.guard->number)));
    loosen();
  }

  bool check(PyObject* const* slots, GuardValues& out) override {
    PyObject** regs = registers(out, order_.num_registers, sizes_.num_integers());
    if (over_) return fail_gone(out);
    if (trace::global_state_key() != global_state_) return failure_of(out).kind = GuardFailure::GlobalState, false;
    TableRef table;
    return fetch(order_.moving, slots, regs, out) && late_hold(order_.of_arguments, regs, out) &&
           watched_hold(slots, regs, table, out) && fetch(order_.trailing, slots, regs, out) &&
           late_hold(order_.late, regs, out) && groups_hold(*table.get(), regs, out) && finish(regs, out);
  }

  const std::vector<Guard>& guards() const { return guards_; }
  const SizeGuards& sizes() const { return sizes_.guards(); }
  const CheckOrder& order() const { return order_; }
  bool follow(PyObject* object) override {
    follow_end_.clear();
    followed_ = follow_end_.add(object) ? object : nullptr;
    table_ = TableRef();
    return followed_;
  }
  size_t num_tables() const override { return num_tables_; }

  const std::unordered_set<PyObject*>& mortals() const override { return mortals_; }
  void when_over(std::function<void()> then) override { then_ = std::move(then); }
  bool is_over() const override { return over_; }

  int traverse(visitproc visit, void* arg) const override {
    for (const Guard& g : guards_) {
      Py_VISIT(g.object.owned());
      Py_VISIT(g.type.owned());
      for (const LooseRef& m : g.members) Py_VISIT(m.owned());
    }
    if (table_)
      for (const Ref& r : table_->pins()) Py_VISIT(r.get());
    return 0;
  }
  size_t num_watched() const override { return table_ ? table_->num_words() : 0; }
  size_t num_steps() const override {
    return order_.moving.size() + order_.trailing.size() + order_.of_arguments.size() + order_.late.size() +
           (table_ ? table_->always().size() : 0) + order_.late_groups.size() + apart_.size();
  }

  Place ended_place() const override {
    BRAZE_CHECK(over_, "a program that is not over");
    return place(*gone_);
  }
  bool wants_tensor(const GuardValues& of) const override {
    const Guard* g = other_object_than(of);
    return g && tensor_at_[g->source.index];
  }
  Place other_object(const GuardValues& of) const override {
    const Guard* g = other_object_than(of);
    return g ? place(*g) : Place{};
  }
  std::string ended() const override {
    std::string where = ended_place().source;
    return (where.empty() ? "an object that was compared by identity" : where) +
           (gone_->members.empty() ? " is gone" : " has a key that is gone");
  }
  std::string failure(const GuardValues& of) const override {
    const GuardFailure& f = of.failure();
    switch (f.kind) {
      case GuardFailure::None: return "none";
      case GuardFailure::GlobalState:
        return "global state of PyTorch changed (grad mode, autocast, default dtype or device, deterministic mode)";
      case GuardFailure::Value: return describe_failure(*f.guard, *sources_, f.value.get());
      case GuardFailure::SizePlace:
      case GuardFailure::SizeCondition: return sizes_.describe(f, of.sizes(), *sources_);
      case GuardFailure::Gone: return ended();
      case GuardFailure::Unsettled: return "what is guarded was changed while it was compared";
    }
    return {};
  }

 private:
  Place place(const Guard& g) const {
    if (!sources_->is_held(g.source)) return {};
    return {sources_->print(g.source), tensor_at_[g.source.index] != 0};
  }
  static const Guard* other_object_than(const GuardValues& of) {
    const GuardFailure& f = of.failure();
    if (f.kind != GuardFailure::Value || !f.value) return nullptr;
    return f.guard->kind == GuardKind::Identity || f.guard->kind == GuardKind::Tensor ? f.guard : nullptr;
  }

  static bool fail(GuardValues& out, const Guard* g, PyObject* v) {
    GuardFailure& f = failure_of(out);
    f.kind = GuardFailure::Value;
    f.guard = g;
    f.value = Ref::borrow(v);
    return false;
  }
  static bool fail_gone(GuardValues& out) { return failure_of(out).kind = GuardFailure::Gone, false; }

  // Another check, which code of the user's calls, may have another object followed meanwhile.
  bool is_followed(PyObject* const* regs) const {
    return order_.followed == kNone || (followed_ && regs[order_.followed] == followed_);
  }

  // Each value is held as soon as it is there: the next step may run code that drops it.
  bool fetch(const std::vector<CheckOrder::Node>& nodes, PyObject* const* slots, PyObject** regs,
             GuardValues& out) const {
    for (const CheckOrder::Node& n : nodes) {
      PyObject* v = n.source->kind == SourceKind::Local
                        ? slots[n.source->index]
                        : step(*n.source, n.base == kNone ? nullptr : regs[n.base], slots, num_locals_plus_);
      regs[n.reg] = Py_XNewRef(v);
      for (uint32_t g = n.guards_begin; g < n.guards_end; ++g)
        if (!holds(*order_.early[g], v, nullptr)) return fail(out, order_.early[g], v);
    }
    return true;
  }

  static bool late_hold(const std::vector<CheckOrder::Late>& guards, PyObject* const* regs, GuardValues& out) {
    for (const CheckOrder::Late& l : guards) {
      PyObject* v = regs[l.reg];
      if (l.tensor) [[likely]] {
        if (!v || !launch::matches(*l.tensor, v)) return fail(out, l.guard, v);
        continue;
      }
      if (!holds(*l.guard, v, l.other == kNone ? nullptr : regs[l.other])) return fail(out, l.guard, v);
    }
    return true;
  }

  bool groups_hold(const WatchTable& table, PyObject* const* regs, GuardValues& out) {
    for (const CheckOrder::Group& g : order_.late_groups) {
      if (!group_holds(*g.guard, g.registers, regs)) return fail(out, g.guard, nullptr);
      for (uint32_t r : g.registers)
        if (g.beside != kNone && table.has(g.beside, regs[r])) return fail(out, g.guard, regs[r]);
    }
    for (auto& [guard, storages] : apart_)
      if (!storages.hold(regs)) return fail(out, guard, nullptr);
    return sizes_.hold(regs, integers(out), failure_of(out));
  }

  bool finish(PyObject** regs, GuardValues& out) {
    for (auto [to, from] : order_.again) regs[to] = Py_XNewRef(regs[from]);
    return !over_ || fail_gone(out);  // what a check calls may end an object
  }

  bool watched_hold(PyObject* const* slots, PyObject** regs, TableRef& table, GuardValues& out) {
    if (!is_followed(regs)) return failure_of(out).kind = GuardFailure::Unsettled, false;
    table = table_;
    if (!table || !table->unchanged()) {
      if (table && table_.get() == table.get()) table_ = TableRef();
      table = TableRef();  // released before a new one is written: that may run code
      table = new_table(slots, regs, out);
      if (!table) return false;
      if (is_followed(regs)) table_ = table;
    }
    table->import_values(regs);
    if (table->always().empty()) [[likely]]
      return true;
    std::vector<Ref> held;
    for (auto& [guard, value] : table->always()) held.push_back(Ref::borrow(value));
    for (auto& [guard, value] : table->always())
      if (!holds(*guard, value, nullptr)) return fail(out, guard, value);
    return true;
  }

  // Compares everything that hangs off fixed objects. Not if a guard fails, or things go on changing meanwhile.
  TableRef new_table(PyObject* const* slots, PyObject* const* regs, GuardValues& out) {
    constexpr int kMostTries = 4;
    for (int i = 0; i < kMostTries; ++i) {
      TableRef table(new WatchTable(order_, secured_));
      ++num_tables_;
      if (!table->fill(slots, num_locals_plus_, regs, failure_of(out))) return TableRef();
      if (table->unchanged()) return table;
    }
    failure_of(out).kind = GuardFailure::Unsettled;
    return TableRef();
  }

  // What others keep alive as long as the guards can hold is not kept by them.
  void loosen() {
    auto give_up = [&](const Guard& g, LooseRef& r) {
      if (!mortals_.count(r.get())) {
        if (!deaths_.add(r.get())) return;
        mortals_.insert(r.get());
        first_guards_.push_back(&g);
      }
      r.loosen();
    };
    for (Guard& g : guards_) {
      if (g.kind == GuardKind::Identity || g.kind == GuardKind::WeakIdentity || g.kind == GuardKind::TypeIs)
        give_up(g, g.object);
      if (g.type) give_up(g, g.type);
      for (LooseRef& m : g.members)
        if (is_compared_by_address(m.get())) give_up(g, m);
    }
    secured_ = mortals_;
    for (const Guard& g : guards_)
      for (const LooseRef* r : {&g.object, &g.type})
        if (*r) secured_.insert(r->get());
    for (size_t i = 0; i < sources_->size(); ++i)
      if (const Source& s = (*sources_)[SourceId(i)]; s.kind == SourceKind::Const) secured_.insert(s.key.get());
  }

  // One of mortals_ goes.
  void end(const Guard& of) {
    if (over_) return;
    over_ = true;
    gone_ = &of;
    if (std::function<void()> then = then_) then();
  }

  std::shared_ptr<const Sources> sources_;
  std::vector<Guard> guards_;
  uint64_t global_state_;
  size_t num_locals_plus_;
  std::vector<char> tensor_at_;  // per source: whether there was a tensor
  const CheckOrder order_;
  SizeCheck sizes_;
  std::vector<std::pair<const Guard*, StoragesApart>> apart_;
  std::unordered_set<PyObject*> secured_;  // what is held for as long as the program lives, and mortals_
  TableRef table_;                         // of the last check that wrote one
  size_t num_tables_ = 0;
  PyObject* followed_ = nullptr;  // not held: nullptr once it is gone
  DeathWatch follow_end_{[this](size_t) { followed_ = nullptr; }};

  bool over_ = false;
  const Guard* gone_ = nullptr;
  std::unordered_set<PyObject*> mortals_;
  std::vector<const Guard*> first_guards_;  // of each
  DeathWatch deaths_{[this](size_t i) { end(*first_guards_[i]); }};
  std::function<void()> then_;
};

}  // namespace

std::unique_ptr<GuardProgram> GuardProgram::compile(std::shared_ptr<const Sources> sources, const GuardSet& guards,
                                                    const std::vector<SourceId>& wanted, uint64_t global_state,
                                                    size_t num_locals_plus, SizeGuards sizes) {
  auto every_time = std::make_unique<Program>(sources, guards.items(), wanted, global_state, num_locals_plus, sizes);
  std::unique_ptr<GuardProgram> program;
  if (const Source* root = argument_to_follow(every_time->order())) {
    auto following = [=, of = every_time.get()]() -> std::unique_ptr<FollowingProgram> {
      return std::make_unique<Program>(sources, of->guards(), wanted, global_state, num_locals_plus, of->sizes(), root);
    };
    program = followed(std::move(every_time), std::move(following), sources, *root, num_locals_plus);
  } else {
    program = std::move(every_time);
  }
  if (!verifying()) return program;
  return verified(std::move(program), std::move(sources), guards, wanted, global_state, num_locals_plus,
                  std::move(sizes));
}

}  // namespace braze::capture
