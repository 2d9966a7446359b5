// A safetensors file, packed on its way to the store: planned once, coded as it is read, never
// held.
#pragma once

#include <memory>

#include "base/thread_pool.h"
#include "deltawire/store.h"
#include "publish/full_version.h"

namespace deltawire {

// `plain` gives the same bytes however often it is read (SteadyBody), or fails. Reads it once. Null
// when packing does not pay.
Result<std::shared_ptr<const Body>> pack_body(std::shared_ptr<const Body> plain, ThreadPool* pool);

// All weights among the files for which it pays, under their packed names.
Status pack_files(std::vector<FullFile>* files, ThreadPool* pool);

}  // namespace deltawire
