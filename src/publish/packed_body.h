// A safetensors file, packed on its way to the store: planned once, coded as it is read, never
// held.
#pragma once

#include <memory>

#include "base/thread_pool.h"
#include "deltawire/store.h"
#include "publish/array_coder.h"
#include "publish/full_version.h"

namespace deltawire {

// `plain` gives the same bytes however often it is read (StableBody), or fails. Reads it once. Null
// when packing does not pay.
// Tensors with coders are not read from it where they pay.
Result<std::shared_ptr<const Body>> pack_body(std::shared_ptr<const Body> plain, ThreadPool* pool,
                                              const CodedThere& there = {});

// All weights among the files for which it pays, under their packed names.
Status pack_files(std::vector<FullFile>* files, ThreadPool* pool, const CodedThere& there = {});

}  // namespace deltawire
