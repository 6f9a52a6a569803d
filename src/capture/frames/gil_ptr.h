// Objects that several calls may use at once, each of which may be the last to let go: counted without atomics, since
// every use is under the GIL.
#pragma once
#include <cstddef>
#include <utility>

namespace braze::capture {

template <class T>
class GilPtr;

// Base of what GilPtr points to.
class GilCounted {
 public:
  GilCounted() = default;
  GilCounted(const GilCounted&) = delete;
  GilCounted& operator=(const GilCounted&) = delete;

 private:
  template <class T>
  friend class GilPtr;
  size_t owners_ = 0;
};

template <class T>
class GilPtr {
 public:
  GilPtr() = default;
  template <class... A>
  static GilPtr make(A&&... a) {
    return GilPtr(new T(std::forward<A>(a)...));
  }
  GilPtr(const GilPtr& o) : GilPtr(o.p_) {}
  GilPtr(GilPtr&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  GilPtr& operator=(GilPtr o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~GilPtr() {
    if (p_ && --p_->owners_ == 0) delete p_;
  }
  T* get() const { return p_; }
  T& operator*() const { return *p_; }
  T* operator->() const { return p_; }
  explicit operator bool() const { return p_ != nullptr; }
  bool operator==(const GilPtr& o) const { return p_ == o.p_; }

 private:
  explicit GilPtr(T* p) : p_(p) {
    if (p_) ++p_->owners_;
  }
  T* p_ = nullptr;
};

}  // namespace braze::capture
