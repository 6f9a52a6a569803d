// An owned reference to a Python object. The name of the maker says who owned it before: steal or borrow.
#pragma once
#include <Python.h>

#include <utility>
#include <vector>

namespace braze::capture {

class Ref {
 public:
  Ref() = default;
  static Ref steal(PyObject* p) { return Ref(p); }
  static Ref borrow(PyObject* p) {
    Py_XINCREF(p);
    return Ref(p);
  }
  Ref(const Ref& o) : p_(o.p_) { Py_XINCREF(p_); }
  Ref(Ref&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  Ref& operator=(Ref o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~Ref() { Py_XDECREF(p_); }

  PyObject* get() const { return p_; }
  PyObject* release() { return std::exchange(p_, nullptr); }
  explicit operator bool() const { return p_ != nullptr; }

 private:
  explicit Ref(PyObject* p) : p_(p) {}
  PyObject* p_ = nullptr;
};

// A reference that can be given up by one who is told when the object goes (death_watch.h), and knows it by its address
// until then.
class LooseRef {
 public:
  LooseRef() = default;
  LooseRef(Ref o) : owned_(std::move(o)), p_(owned_.get()) {}
  PyObject* get() const { return p_; }
  PyObject* owned() const { return owned_.get(); }  // for the garbage collector
  void loosen() { owned_ = Ref(); }
  explicit operator bool() const { return p_ != nullptr; }

 private:
  Ref owned_;
  PyObject* p_ = nullptr;
};

// What one thread remembers between two of its steps. A thread ends outside of the interpreter, the main one after it:
// what is still there then is left alone.
template <typename T>
class ThreadMemory : public std::vector<T> {
 public:
  ThreadMemory() = default;
  ThreadMemory(const ThreadMemory&) = delete;
  ~ThreadMemory() {
    for (T& left : *this) left.abandon();
  }
};

// A line of the user's program. The code object is kept alive by the decoder's cache (bytecode.h).
struct UserLine {
  PyCodeObject* code = nullptr;
  int line = 0;
};

}  // namespace braze::capture
