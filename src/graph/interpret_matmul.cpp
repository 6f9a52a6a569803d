#include "graph/interpret_rules.h"

namespace braze::graph::host {
namespace {

// alpha * (a @ b) + beta * add, of two or three dimensions.
void product(HostCall& c, const HostTensor& a, const HostTensor& b, const HostTensor* add, double beta, double alpha) {
  Dims sizes = c.sizes();
  size_t row = sizes.size() - 2, column = sizes.size() - 1;
  int64_t inner = a.sizes.back();
  Dims left, right;
  c.each([&](const Dims& index) {
    double s = 0;
    left = right = index;
    for (int64_t k = 0; k < inner; ++k) {
      left[column] = right[row] = k;
      s += at(a, left) * at(b, right);
    }
    return alpha * s + (add && beta != 0 ? beta * at(*add, index) : 0);
  });
}

void mm(HostCall& c) { product(c, c.tensor(0), c.tensor(1), nullptr, 0, 1); }
void addmm(HostCall& c) { product(c, c.tensor(1), c.tensor(2), &c.tensor(0), c.number(3, 1), c.number(4, 1)); }

}  // namespace

Rule matmul_rule(Op op) {
  switch (op) {
    case Op::mm:
    case Op::bmm: return mm;
    case Op::addmm:
    case Op::baddbmm: return addmm;
    default: return nullptr;
  }
}

}  // namespace braze::graph::host
