// Iterators of Python's own that were there before the capture.
#include "capture/cpython/generator.h"
#include "capture/cpython/iterators.h"
#include "capture/cpython/itertool.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/guards/content.h"
#include "capture/guards/dynamic.h"
#include "capture/vars/all.h"

namespace braze::capture {
namespace {

using cpython::IteratorFamily;
using cpython::Itertool;
using cpython::ItertoolField;

// Reads what content_of() tells of the iterator, item by item, each with its guard.
class Reader {
 public:
  Reader(Translator& tr, SeenSizes* seen, PyObject* iterator, SourceId source)
      : tr_(tr),
        seen_(seen),
        type_(Py_TYPE(iterator)),
        family_(cpython::iterator_family(type_)),
        at_(tr.sources().derived(SourceKind::Content, source)) {
    if (family_ != IteratorFamily::None) content_ = tr.keep(Ref::borrow(content_of(iterator)));
    if (!content_ || !readable()) return;
    tr.guards().type_is(source, type_, tr.line());
    tr.guards().length(at_, size(), tr.line());
    made_ = iterator_variable();
  }

  IteratorVariable* made() const { return made_; }

 private:
  Py_ssize_t size() const { return PyTuple_GET_SIZE(content_); }
  PyObject* raw(Py_ssize_t i) const { return PyTuple_GET_ITEM(content_, i); }
  int64_t number(Py_ssize_t i) const { return PyLong_AsLongLong(raw(i)); }
  Variable* part(Py_ssize_t i) { return tr_.wrap(raw(i), tr_.sources().tuple_item(at_, i)); }
  std::vector<Variable*> parts(Py_ssize_t from) {
    std::vector<Variable*> out;
    for (Py_ssize_t i = from; i < size(); ++i) out.push_back(part(i));
    return out;
  }
  int64_t fixed(Py_ssize_t i) {
    tr_.guards().equal(tr_.sources().tuple_item(at_, i), raw(i), tr_.line());
    return number(i);
  }

  // Nothing is guarded before this has said so.
  bool readable() {
    if (size() == 0) return true;
    PyObject* over = raw(0);
    switch (family_) {
      case IteratorFamily::Sequence: {
        bool plain = PyList_Check(over) || PyTuple_Check(over);
        bool back = type_ == &PyReversed_Type || type_ == &PyListRevIter_Type;
        return (back ? PyList_CheckExact(over) || PyTuple_CheckExact(over)
                     : plain || PyUnicode_CheckExact(over) || PyBytes_CheckExact(over)) &&
               near(number(1));
      }
      case IteratorFamily::Range:
        return PyObject_Size(over) >= 0 ? near(-PyObject_Size(over)) && fits(over) : (PyErr_Clear(), false);
      case IteratorFamily::Dict: return near(number(1));
      case IteratorFamily::Set: return PyAnySet_CheckExact(over) && near(number(1));
      case IteratorFamily::Deque:
      case IteratorFamily::Enumerate: return near(number(1));
      case IteratorFamily::Itertool: return near(itertool_place());
      default: return true;
    }
  }
  bool near(int64_t position) { return !seen_ || seen_->position(tr_.sources().print(at_), position); }
  // What changes from call to call and is read as a constant.
  int64_t itertool_place() const {
    int64_t place = 0;
    for (Py_ssize_t i = 0; i < size(); ++i)
      if (field(i) == ItertoolField::Number)
        place = place * 31 + number(i);
      else if (tool() == Itertool::Cycle && PyList_Check(raw(i)))
        place += PyList_GET_SIZE(raw(i));
    return place;
  }
  Itertool tool() const { return cpython::itertool_of(type_); }
  ItertoolField field(Py_ssize_t i) const { return cpython::itertool_field(tool(), static_cast<size_t>(i)); }
  static bool fits(PyObject* range) {
    for (const char* part : {"start", "stop", "step"}) {
      Ref n = Ref::steal(native::attr(Ground::made(), range, part));
      int overflow = 0;
      PyLong_AsLongLongAndOverflow(n.get(), &overflow);
      if (overflow) return false;
    }
    return true;
  }

  IteratorVariable* iterator_variable() {
    switch (family_) {
      case IteratorFamily::Sequence:
        return type_ == &PyReversed_Type || type_ == &PyListRevIter_Type ? reversed() : sequence();
      case IteratorFamily::Range: return range();
      case IteratorFamily::Dict: return dict();
      case IteratorFamily::Set: return set();
      case IteratorFamily::Enumerate: {
        int64_t next = fixed(1);
        return tr_.make<EnumerateIterator>(part(0), next);
      }
      case IteratorFamily::Zip:
        tr_.guards().equal(tr_.sources().tuple_item(at_, 0), raw(0), tr_.line());
        return tr_.make<ZipIterator>(parts(1), raw(0) == Py_True);
      case IteratorFamily::Call:
        if (type_ == &PyFilter_Type) return tr_.make<FilterIterator>(part(0), part(1));
        return tr_.make<MapIterator>(part(0), parts(1));
      case IteratorFamily::Deque: return deque();
      case IteratorFamily::Itertool: return itertool();
      case IteratorFamily::None: break;
    }
    return nullptr;
  }

  // What is gone through: a container, or what an instance of a class derived from one has of it. nullptr: of another
  // class.
  Variable* container(Kind kind) {
    Variable* v = tr_.force(part(0));
    if (v->is(Kind::Object)) v = v->as<ObjectVariable>()->base;
    return v && v->is(kind) ? v : nullptr;
  }

  IteratorVariable* sequence() {
    if (size() == 0) {
      auto* it = tr_.make<SequenceIterator>(
          type_ == &PyListIter_Type ? static_cast<Variable*>(tr_.list({})) : tr_.tuple({}), std::vector<Variable*>{});
      it->done = true;
      return it;
    }
    size_t index = static_cast<size_t>(fixed(1));
    Variable* over = PyList_Check(raw(0))    ? container(Kind::List)
                     : PyTuple_Check(raw(0)) ? container(Kind::Tuple)
                                             : tr_.force(part(0));
    if (!over) return nullptr;
    IteratorVariable* it = static_cast<IteratorVariable*>(tr_.force(tr_.iter(over)));
    static_cast<SequenceIterator*>(it)->index = index;
    return it;
  }

  IteratorVariable* reversed() {
    bool list = type_ == &PyListRevIter_Type;
    int64_t index = size() ? fixed(1) : -1;
    Variable* over = size() ? container(list ? Kind::List : Kind::Tuple)
                     : list ? static_cast<Variable*>(tr_.list({}))
                            : tr_.tuple({});
    if (!over) return nullptr;
    auto* it = tr_.make<ReversedIterator>(static_cast<SequenceVariable*>(over));
    it->index = index;
    it->done = !size();
    return it;
  }

  IteratorVariable* range() {
    PyObject* rest = raw(0);
    tr_.guards().range_is(tr_.sources().tuple_item(at_, 0), rest, tr_.line());
    auto part = [&](const char* name) {
      return PyLong_AsLongLong(
          Ref::steal(native::attr(Ground::guarded(tr_.sources().tuple_item(at_, 0)), rest, name)).get());
    };
    return tr_.make<RangeIterator>(part("start"), part("step"), PyObject_Size(rest));
  }

  IteratorVariable* dict() {
    DictVariable* over = nullptr;
    int what = cpython::kKeys;
    if (size()) {
      over = static_cast<DictVariable*>(container(Kind::Dict));
      if (!over || over->structure) return nullptr;  // where it was found is a place in the dict as it was before
      what = static_cast<int>(fixed(2));
    }
    if (!over) {
      over = tr_.make<DictVariable>(type_ == &PyODictIter_Type ? library().ordered_dict : &PyDict_Type);
      what = cpython::dict_part(type_);
    }
    auto* it = tr_.make<DictIterator>(tr_, over, static_cast<DictIterator::What>(what & ~cpython::kReversed),
                                      (what & cpython::kReversed) != 0);
    if (size())
      it->index = static_cast<size_t>(fixed(1));
    else
      it->done = true;
    return it;
  }

  IteratorVariable* set() {
    if (size() == 0) {
      auto* it = tr_.make<SetIterator>(tr_.make<SetVariable>(), std::vector<Variable*>{});
      it->done = true;
      return it;
    }
    auto* over = static_cast<SetVariable*>(container(Kind::Set));
    if (!over || over->changed) return nullptr;
    auto* it = tr_.make<SetIterator>(over, over->items(tr_));
    it->index = static_cast<size_t>(fixed(1));
    return it;
  }

  IteratorVariable* deque() {
    size_t index = static_cast<size_t>(fixed(1));
    Variable* over = container(Kind::List);
    if (!over || over->type() != library().deque || over->as<ListVariable>()->changes) return nullptr;
    auto* it = static_cast<SequenceIterator*>(tr_.force(tr_.iter(over)));
    it->index = index;
    return it;
  }

  IteratorVariable* itertool() {
    std::vector<Variable*> fields;
    for (Py_ssize_t i = 0; i < size(); ++i) {
      SourceId at = tr_.sources().tuple_item(at_, i);
      bool empty = raw(i) == cpython::empty_slot();
      if (empty) tr_.guard_identity(at, raw(i));
      if (field(i) == ItertoolField::Number)
        fields.push_back(tr_.integer(fixed(i), Ground::guarded(at)));
      else
        fields.push_back(empty ? nullptr : part(i));
    }
    if (tool() == Itertool::Count && size() == 1) fields.push_back(tr_.integer(1, Ground::guarded(at_)));
    return tr_.make<ItertoolIterator>(tool(), std::move(fields));
  }

  Translator& tr_;
  SeenSizes* seen_;
  PyTypeObject* type_;
  IteratorFamily family_;
  SourceId at_;
  PyObject* content_ = nullptr;
  IteratorVariable* made_ = nullptr;
};

}  // namespace

Variable* wrap_iterator(Translator& tr, SeenSizes* seen, PyObject* iterator, SourceId source) {
  IteratorVariable* it = Reader(tr, seen, iterator, source).made();
  if (!it) return nullptr;
  it->source = source;
  it->first_ = it->place();
  return it;
}

void IteratorVariable::emit_advance(Codegen& cg, Reg self) {
  Place now = place();
  if (now.at == first_.at && now.ended == first_.ended) return;
  if (went_wrong(cg.tr)) throw CannotRebuild{this, "an iterator over something that was changed"};
  std::vector<Reg> args{cg.constant(cpython::iterator_advance()), self};
  args.push_back(cg.constant(Ref::steal(PyLong_FromLongLong(now.at - first_.at)).get()));
  args.push_back(cg.constant(now.ended ? Py_True : Py_False));
  cg.recipe.make(StepKind::Call, args);
}

}  // namespace braze::capture
