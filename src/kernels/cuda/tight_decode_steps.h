// The steps that tight_decode.cu puts together. There are blocks, and all go to one stream.
#pragma once

#include "kernels/cuda/tight_decode.h"

namespace deltawire::cuda {

// Gaps to ranks. Looks at the ends of blocks without coded classes, too.
Status decode_gaps(const TightDecodeWork& work, Stream stream);
// Blocks without coded classes: whether each class has as many elements as its ranks say.
Status check_ranks(const TightDecodeWork& work, unsigned width, Stream stream);
// Blocks with coded classes: the old values of those, and what check_ranks() does.
Status find_values(const TightDecodeWork& work, unsigned width, Stream stream);
// Of these, old values to new ones; the signs of other classes. Looks at the ends of blocks.
Status decode_values(const TightDecodeWork& work, unsigned width, Stream stream);
// All blocks: changes go where the ranks point, and what check_ranks() does.
Status write_changes(const TightDecodeWork& work, unsigned width, Stream stream);
// The same, but changes go to lists.
Status list_changes(const TightDecodeWork& work, unsigned width, Stream stream);

}  // namespace deltawire::cuda
