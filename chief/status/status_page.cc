#include "chief/status/status_page.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <chrono>
#include <thread>
#include <utility>

namespace muster::chief {
namespace {

constexpr int kMaxReaders = 16;

// Returns the SHA-256 of the text between `begin` and `end`, as base64.
std::string HashBetween(const std::string& page, std::string_view begin, std::string_view end) {
  const size_t from = page.find(begin) + begin.size();
  const size_t size = page.find(end, from) - from;
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  EVP_Digest(page.data() + from, size, digest, &length, EVP_sha256(), nullptr);
  unsigned char text[2 * EVP_MAX_MD_SIZE];
  const int written = EVP_EncodeBlock(text, digest, static_cast<int>(length));
  return {reinterpret_cast<char*>(text), static_cast<size_t>(written)};
}

// An id above those of earlier chiefs of the run, unless the clock is set back. A reader with a
// wrong id gets the whole state.
uint64_t FirstId() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()) *
         1000;
}

}  // namespace

std::string PolicyOf(const std::string& page) {
  return fmt::format(
      "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; connect-src 'self'; "
      "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
      HashBetween(page, "<script>", "</script>"), HashBetween(page, "<style>", "</style>"));
}

StatusPage::StatusPage(PageFeed::Source source, const RunWatch& watch)
    : feed_(std::move(source), watch, FirstId()) {}

absl::StatusOr<std::unique_ptr<StatusPage>> StatusPage::Start(web::HttpOptions options,
                                                              PageFeed::Source source,
                                                              const RunWatch& watch) {
  std::unique_ptr<StatusPage> page(new StatusPage(std::move(source), watch));
  options.max_streams = kMaxReaders;
  MUSTER_ASSIGN_OR_RETURN(page->server_, web::HttpServer::Make(options));
  const std::string policy = PolicyOf(kStatusPage);
  page->server_->Get("/", [policy](const web::HttpRequest&) {
    web::HttpResponse response;
    response.type = "text/html; charset=utf-8";
    response.body = kStatusPage;
    response.headers = {{"Content-Security-Policy", policy}};
    return response;
  });
  PageFeed* feed = &page->feed_;
  page->server_->Get("/status.json", [feed](const web::HttpRequest&) {
    web::HttpResponse response;
    response.type = "application/json";
    response.body = Dump(feed->Whole()) + "\n";
    return response;
  });
  page->server_->Events("/events", [feed](uint64_t after) -> std::optional<web::HttpEvent> {
    std::optional<PageMessage> message = feed->Next(after);
    if (!message) return std::nullopt;
    return web::HttpEvent{message->id, std::move(message->text)};
  });
  page->server_->Start();
  return page;
}

void StatusPage::ShowEnd() {
  if (!feed_.AskAgain()) return;
  // Twice the interval at which the streams look for news.
  std::this_thread::sleep_for(2 * web::HttpOptions().event_interval);
}

}  // namespace muster::chief
