// The steps that tight_decode.cu puts together. There are blocks, and all go to one stream.
#pragma once

#include "kernels/cuda/tight_decode.h"

namespace deltawire::cuda {

// Gaps to ranks, in work.positions. Looks at the ends of blocks of unit steps, too.
Status decode_gaps(const TightDecodeWork& work, Stream stream);

// What to do with which blocks.
enum LocateFlags : unsigned {
  kFindOthers = 1,  // not of unit steps: ranks to positions, old values of coded classes
  kWriteUnits = 2,  // of unit steps: the new values go where the ranks point
};
Status locate_ranks(const TightDecodeWork& work, unsigned width, unsigned flags, Stream stream);
// Blocks of unit steps only: whether each class has as many elements as its ranks say.
Status check_ranks(const TightDecodeWork& work, unsigned width, Stream stream);

// The other blocks: of coded classes old values to new ones; then all classes to where they belong.
Status decode_values(const TightDecodeWork& work, unsigned width, Stream stream);
Status write_values(const TightDecodeWork& work, unsigned width, Stream stream);

}  // namespace deltawire::cuda
