# Values that must be refused, each with the variable that refuses it.
mock_provider "google" {}

variables {
  project_id              = "empanel-test"
  image                   = "europe-west1-docker.pkg.dev/empanel-test/empanel/empanel@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
  owner                   = "team"
  alarm_emails            = ["team@example.com"]
  runbook_url             = "https://git.example.com/infra/RUNBOOK.md"
  seats_per_second        = 10
  provider_keys           = { OPENAI_API_KEY = "3" }
  webhook_secrets_version = "2"
  attempts_per_hour_alarm = 1000
}

run "image_by_tag" {
  command = plan

  variables {
    image = "europe-west1-docker.pkg.dev/p/empanel/empanel:latest"
  }

  expect_failures = [var.image]
}

run "provider_not_below_handler" {
  command = plan

  variables {
    provider_deadline_seconds = 540
    handler_deadline_seconds  = 545
  }

  expect_failures = [var.provider_deadline_seconds]
}

run "handler_not_below_acknowledgement" {
  command = plan

  variables {
    handler_deadline_seconds = 596
  }

  expect_failures = [var.handler_deadline_seconds]
}

run "acknowledgement_beyond_pubsub" {
  command = plan

  variables {
    ack_deadline_seconds = 601
  }

  expect_failures = [var.ack_deadline_seconds]
}

run "secret_not_pinned" {
  command = plan

  variables {
    provider_keys = { OPENAI_API_KEY = "latest" }
  }

  expect_failures = [var.provider_keys]
}

run "webhook_secret_not_pinned" {
  command = plan

  variables {
    webhook_secrets_version = "latest"
  }

  expect_failures = [var.webhook_secrets_version]
}

run "tenants_file_not_pinned" {
  command = plan

  variables {
    tenants_file_version = "latest"
  }

  expect_failures = [var.tenants_file_version]
}

run "no_owner" {
  command = plan

  variables {
    owner = ""
  }

  expect_failures = [var.owner]
}

run "nobody_told" {
  command = plan

  variables {
    alarm_emails = []
  }

  expect_failures = [var.alarm_emails]
}

run "one_request_at_once" {
  command = plan

  variables {
    concurrency          = 1
    provider_concurrency = 1
  }

  expect_failures = [var.concurrency]
}

run "fewer_callers_than_none" {
  command = plan

  variables {
    waiting_callers = -1
  }

  expect_failures = [var.waiting_callers]
}

run "public_group" {
  command = plan

  variables {
    api_invokers = ["allUsers"]
  }

  expect_failures = [var.api_invokers]
}

run "no_retention" {
  command = plan

  variables {
    retention_days = 0
  }

  expect_failures = [var.retention_days]
}

run "unknown_target" {
  command = plan

  variables {
    serving_revisions = { worker = "r1" }
  }

  expect_failures = [var.serving_revisions]
}

run "collector_without_a_scheme" {
  command = plan

  variables {
    otlp = { endpoint = "collector:4318" }
  }

  expect_failures = [var.otlp]
}

run "sampler_that_nobody_knows" {
  command = plan

  variables {
    otlp = { endpoint = "http://localhost:4318", sampler = "sometimes" }
  }

  expect_failures = [var.otlp]
}
