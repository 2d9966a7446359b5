// The engines there are, by kind; make_engine() picks one.
#pragma once

#include <memory>
#include <string>

#include "notify/engine.h"

namespace deltawire {

// `url` has passed check_engine_url().
std::unique_ptr<Engine> make_sglang(std::string url, const EngineOptions& options);
std::unique_ptr<Engine> make_vllm(std::string url, const EngineOptions& options);
std::unique_ptr<Engine> make_exec(std::string command, const EngineOptions& options);

}  // namespace deltawire
