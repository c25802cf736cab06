# A trial: one provider, a handful of seats a second, no warm instances, nothing protected.
project_id              = "empanel-trial"
owner                   = "trial"
alarm_emails            = ["empanel-trial@example.com"]
runbook_url             = "https://git.example.com/empanel/blob/main/infra/RUNBOOK.md"
seats_per_second        = 2
retention_days          = 30
protect                 = false
provider_keys           = { OPENAI_API_KEY = "1" }
webhook_secrets_version = "1"
attempts_per_hour_alarm = 2000
tenant_day              = { requests = 5000, cost_usd = 20 }
api_limits              = { key_requests_per_minute = 300, tenant_open_seats = 2000 }
