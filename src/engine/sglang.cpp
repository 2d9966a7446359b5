#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/http.h"
#include "engine/kinds.h"

namespace deltawire {
namespace {

using Json = nlohmann::json;

// Three choices that are not the server's defaults, and why (seen on 0.5.23):
//   mode "retract"       Running requests go back to the queue and are prefilled again with the new
//                        weights: nobody's request is lost ("abort" would), and no sequence is
//                        continued on keys and values of other weights ("in_place" would).
//   "flush_cache": false A flush that fails inside the update makes it answer 400 although the
//                        weights have changed; older servers die of it. So the update is about
//                        weights alone, and /flush_cache comes after it, on its own.
//   weight_version       The label that /model_info shows. It settles what an answer leaves open.
class SglangEngine final : public Engine {
 public:
  SglangEngine(std::string url, const EngineOptions& options)
      : name_("sglang=" + url), http_(url, options), probe_(url, for_probes(options)) {}

  std::string name() const override { return name_; }
  Status pause() override { return command("/pause_generation", Json{{"mode", "retract"}}); }
  Status resume() override { return command("/continue_generation", Json::object()); }

  ReloadResult reload(const ReloadRequest& request) override {
    const std::string label = std::to_string(request.version);
    const std::optional<std::string> before = weight_version();
    const Json body = {{"model_path", request.checkpoint.string()},
                       {"weight_version", label},
                       {"flush_cache", false},
                       {"abort_all_requests", false}};
    const auto reply = http_.post(kUpdate, body.dump());
    const std::optional<std::string> after = weight_version();
    ReloadResult result = judge(reply, label, before, after);
    if (result.weights == Weights::kNew) flush(&result);
    return result;
  }

 private:
  static constexpr std::string_view kUpdate = "/update_weights_from_disk";

  // Reading a label is no reason to keep an engine paused: one short attempt.
  static EngineOptions for_probes(EngineOptions options) {
    options.limits.retries = 0;
    options.limits.timeout_seconds = std::min(options.limits.timeout_seconds, 10.0);
    return options;
  }

  Status command(std::string_view path, const Json& body) const {
    const auto reply = http_.post(path, body.dump());
    if (!reply.ok()) return Status(reply.status()).at(name_);
    if (!reply->ok()) return HttpClient::failure("POST", path, *reply).at(name_);
    return {};
  }

  // The label of the weights it holds; nothing when it does not say.
  std::optional<std::string> weight_version() const {
    const auto reply = probe_.get("/model_info");
    if (!reply.ok() || !reply->ok()) return std::nullopt;
    const Json info = Json::parse(reply->body, nullptr, false);
    if (!info.is_object()) return std::nullopt;
    const auto found = info.find("weight_version");
    if (found == info.end() || !found->is_string()) return std::nullopt;
    return found->get<std::string>();
  }

  // What the answer and the labels around it amount to. A label that became the new one means new
  // weights, whatever the answer was. One that was there before proves nothing: another run may
  // have had a version of the same number.
  ReloadResult judge(const Result<HttpReply>& reply, const std::string& label,
                     const std::optional<std::string>& before,
                     const std::optional<std::string>& after) const {
    const bool says_new = after == label;
    if (reply.ok() && reply->ok()) {
      if (says_new || !after) return {{}, Weights::kNew, {}};
      return {corruption(name_ + ": POST " + std::string(kUpdate) + " succeeded, but /model_info " +
                         "has weight_version \"" + *after + "\", not \"" + label + "\""),
              Weights::kUnknown,
              {}};
    }
    Status failed = reply.ok() ? HttpClient::failure("POST", kUpdate, *reply) : reply.status();
    failed = std::move(failed).at(name_);
    if (says_new && before && before != label) {
      return {{}, Weights::kNew, {"it has the new weights in spite of " + failed.to_string()}};
    }
    const bool refused = reply.ok() && !says_new;
    return {std::move(failed), refused ? Weights::kOld : Weights::kUnknown, {}};
  }

  // Keys and values computed with the old weights must not be found by new requests.
  void flush(ReloadResult* result) const {
    if (const Status status = command("/flush_cache", Json::object()); !status.ok()) {
      result->warnings.push_back("the prefix cache of the old weights is still there: " +
                                 status.to_string());
    }
  }

  const std::string name_;
  const HttpClient http_, probe_;
};

}  // namespace

std::unique_ptr<Engine> make_sglang(std::string url, const EngineOptions& options) {
  return std::make_unique<SglangEngine>(std::move(url), options);
}

}  // namespace deltawire
