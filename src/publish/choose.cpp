// The fastest codec: what a publisher measures, remembers and decides.
#include <chrono>

#include "chain/heartbeat.h"
#include "publish/codec_sample.h"
#include "publish/impl.h"

namespace deltawire {

void Publisher::Impl::recall_rates() {
  if (chooses_codec() && on_disk != nullptr) rates = CodecRates::load(snapshot_folder());
}

// Nothing waits for them: what comes too late is there for the next version.
void Publisher::Impl::ask_replicas() {
  if (asked.valid()) return;
  asked = std::async(std::launch::async, [own = store] { return fetch_rates(*own, unix_now()); });
}

void Publisher::Impl::hear_replicas() {
  if (!asked.valid()) return;
  if (asked.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
  const FetchRates heard = asked.get();
  rates.learn_download(heard.middle, heard.num_replicas);
}

Status Publisher::Impl::choose(DiffJob* job, Draft* draft) {
  ask_replicas();
  DW_ASSIGN_OR_RETURN(const CodecSample sample, sample_codecs(*job, &pool));
  hear_replicas();
  const std::vector<CodecForecast> forecasts = forecast_codecs(sample, rates);
  if (forecasts.empty()) {
    draft->codec = {"tight", "fastest: there is nothing to compare"};
  } else {
    const bool near = !store->local_folder().empty() || store->url().starts_with("memory:");
    draft->codec = choose_codec(forecasts, rates.link(near), rates.last_codec());
  }
  for (const CodecForecast& forecast : forecasts) {
    if (forecast.codec != draft->codec.codec) continue;
    draft->sampled_for = sample.weights_bytes;
    draft->encode_forecast = forecast.encode_seconds - rates.overhead() * sample.weights_bytes;
  }
  job->codec = draft->codec.codec;
  return {};
}

// When everything is put: whether it will be committed does not matter to a rate.
void Publisher::Impl::learn(const Draft& draft) {
  if (!chooses_codec()) return;
  uint64_t bytes = 0;
  for (const PartRef& part : draft.stream ? draft.stream->parts() : draft.manifest.parts) {
    bytes += part.size_bytes;
  }
  rates.learn_upload(double(bytes), draft.stream   ? draft.stream->upload_seconds()
                                    : draft.upload ? draft.upload->upload_seconds()
                                                   : 0);
  if (draft.stream) {
    // An encoder that waited for the link says nothing of its own speed.
    const MemoryShares shares = share_memory(options.limits.memory_bytes, options.part_bytes);
    if (bytes < shares.queue_bytes) {
      rates.learn_encode(draft.sampled_for, draft.encode_forecast, draft.encode_seconds);
    }
    rates.learn_choice(draft.codec.codec);
  }
  hear_replicas();
  if (on_disk != nullptr) rates.save(snapshot_folder());
}

}  // namespace deltawire
