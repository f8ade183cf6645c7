// Tests that any number from a peer is accepted or refused.
#include "chief/coordinator/admission/convert.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace muster::chief {
namespace {

TEST(ApplyReport, AgesOfAnySizeGivePointsInThePast) {
  const PausingTime now = PausingTime() + std::chrono::hours(1);
  for (const int64_t age : {INT64_MIN, int64_t{-1}, int64_t{0}, int64_t{100}, INT64_MAX}) {
    proto::Report report;
    report.set_phase_age_ms(age);
    report.set_collective_age_ms(age);
    MemberInfo member;
    ApplyReport(report, now, &member);
    EXPECT_LE(member.report.phase_since, now) << age;
    EXPECT_LE(member.report.collective_since, now) << age;
    EXPECT_GE(StatusOfMember(member, now).phase_age_seconds(), 0) << age;
  }
}

}  // namespace
}  // namespace muster::chief
