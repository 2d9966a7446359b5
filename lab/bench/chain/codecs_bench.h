// `bench chain --codecs`: publish-to-applied with each codec, and with the one that the publisher
// chooses, over links of several rates.
#pragma once

#include "cli/context.h"
#include "lab/bench/data.h"

namespace deltawire::cli {

Status bench_codecs(const Context& context, const BenchData& data, unsigned repeat,
                    const std::filesystem::path& folder);

}  // namespace deltawire::cli
