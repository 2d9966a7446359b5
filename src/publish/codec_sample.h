// Tries codecs on a small share of a version, to know what they would make of all of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "publish/codec_choice.h"
#include "publish/codec_rates.h"
#include "publish/diff.h"

namespace deltawire {

// What one codec took for the sample. Seconds are those of one processor.
struct SampledCodec {
  std::string codec;
  double encode_seconds = 0, apply_seconds = 0;
  double payload_bytes = 0;
};

struct CodecSample {
  double weights_bytes = 0;          // that a publish compares
  double sampled_bytes = 0;          // of those, tried here; 0: nothing could be
  unsigned threads = 1;              // that a publish has for it
  std::vector<SampledCodec> codecs;  // tight and gaps; raw, where it is not plainly too large
};

// A few slices, spread over the tensors: a 64th of them, 8 MiB at most. On a GPU a few tensors.
Result<CodecSample> sample_codecs(const DiffJob& job, ThreadPool* pool);

// The sample, grown to the whole version and corrected by what was learned.
std::vector<CodecForecast> forecast_codecs(const CodecSample& sample, const CodecRates& rates);

}  // namespace deltawire
