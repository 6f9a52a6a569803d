// One element's arithmetic, for the interpreter.
#pragma once
#include <cstdint>

#include "loop/loop.h"

namespace braze::loop {

// A value of any dtype: floats in `f` (already rounded to the compute type), integers and Bool in `i`.
struct Scalar {
  double f = 0;
  int64_t i = 0;
};

double to_compute(DType t, double v);  // rounded to the type that arithmetic on `t` uses
double to_storage(DType t, double v);  // rounded to `t`
int64_t wrap(DType t, int64_t v);
Scalar load(DType t, const uint8_t* p);
void store(DType t, uint8_t* p, Scalar s);
double float_op(OpCode c, double a, double b);
int64_t int_op(OpCode c, DType t, int64_t a, int64_t b);

}  // namespace braze::loop
