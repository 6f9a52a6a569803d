// How a nest is spread over a GPU: which points a thread computes, and how many threads and blocks there are.
#pragma once
#include "base/target.h"
#include "loop/loop.h"

namespace braze::codegen::nvptx {

struct Shape {
  enum class Way : uint8_t {
    Points,    // no stage has axes: a thread computes `vector` neighbouring points of the last outer axis
    Tiles,     // the same in squares of the last two outer axes, for reads that run along the other one
    Rows,      // a group of threads shares one outer point and splits the axes of its stages
    Columns,   // neighbouring threads have neighbouring points of the last outer axis; rows of threads split the stages
    Products,  // a block computes 16 wide points with all narrow ones (loop/product.h)
    Windows,  // a thread computes `copies` neighbouring points of a strip and `vector` of the last axis (loop/window.h)
  };
  Way way = Way::Points;
  int threads = 256;  // per block
  int vector = 1;     // neighbouring elements that a thread loads at once. Products: that it holds of a row
  int group = 1;      // Rows: threads per outer point. Columns: threads along the last outer axis.
  int copies = 1;  // Rows: vectors in flight per thread where a stage's axes do not fit `most_copies`. Products: steps
                   // in its ring. Windows: points of the strip
  int most_copies = 8;  // Rows: a stage of at most this many vectors per thread is straight-line code
  sym::Expr blocks;
  bool early = false;  // worth starting while what precedes it ends (see CompiledKernel)
};

// Squares of Way::Tiles: kTile x kTile points by kTile x kTileRows threads.
inline constexpr int kTile = 32, kTileRows = 8;
// Way::Products: points of one multiplication of the tensor cores.
inline constexpr int kTileWide = 16, kTileNarrow = 8;

// What a launch has besides the nest.
struct Beside {
  int64_t threads = 0;  // of its other nests, in all blocks
  int block = 0;        // threads per block, where the nest leaves a choice; 0: as suits it
};

// Way::Rows: elements that a thread takes at once of the stage's last axis, and whether the stage is code without a
// loop.
int lanes_of(sym::ExprArena& arena, const loop::Stage& stage, const Shape& shape);
bool is_straight(sym::ExprArena& arena, const loop::Stage& stage, const Shape& shape);

Shape choose_shape(const loop::Program& program, const loop::Nest& nest, const Target& target,
                   const Beside& beside = {});
// Whether `Beside::block` decides its threads per block.
bool fits_any_block(const Shape& shape);

}  // namespace braze::codegen::nvptx
