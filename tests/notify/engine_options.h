// Shared by tests of engines: short limits, and scripts of servers that accept everything.
#pragma once

#include "notify/notifier.h"
#include "servers/http_script.h"
#include "test_files.h"

namespace deltawire::testing {

using Json = HttpScript::Json;

inline EngineOptions quick(unsigned retries = 0, double timeout_seconds = 20) {
  return {.limits = {timeout_seconds, retries, 0.001}};
}

inline std::unique_ptr<Engine> engine_at(const std::string& kind, const HttpScript& server,
                                         const EngineOptions& options = quick()) {
  return must(make_engine(kind + "=" + server.url(), options));
}

inline Json step(int status, Json body = Json::object()) {
  return {{"status", status}, {"body", std::move(body)}};
}
inline Json does(const std::string& what) { return {{"do", what}}; }
template <class... Steps>
Json steps(Steps... each) {
  Json list = Json::array();
  (list.push_back(each), ...);
  return list;
}

// A server that serves version 11 and accepts version 12.
inline Json sglang_script() {
  return {{"POST /pause_generation", steps(step(200, {{"status", "ok"}}))},
          {"GET /model_info",
           steps(step(200, {{"weight_version", "11"}}), step(200, {{"weight_version", "12"}}))},
          {"POST /update_weights_from_disk", steps(step(200, {{"success", true}}))},
          {"POST /flush_cache", steps(step(200, "Cache flushed.\n"))},
          {"POST /continue_generation", steps(step(200, {{"status", "ok"}}))}};
}

inline Json vllm_script() {
  return {{"POST /pause", steps(step(200, {{"status", "paused"}}))},
          {"POST /collective_rpc", steps(step(200, {{"results", {nullptr}}}))},
          {"POST /reset_prefix_cache", steps(step(200, {{"success", true}}))},
          {"POST /reset_encoder_cache", steps(step(200))},
          {"POST /update_weight_version", steps(step(200, {{"success", true}}))},
          {"POST /resume", steps(step(200, {{"status", "resumed"}}))}};
}

inline const ReloadRequest kTo12{"/models/local", 12, "run-7"};

}  // namespace deltawire::testing
