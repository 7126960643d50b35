#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright (c) the hugeleaf developers
# SPDX-License-Identifier: MIT OR Apache-2.0

from __future__ import annotations

DOCUMENTATION = r'''
module: plan
short_description: Calculate the huge pages of the services of a host
version_added: 0.1.0
description:
  - Runs C(hugeleaf plan) and returns the plan file as text. Changes nothing, also outside of check mode.
  - Returns the text of the current plan file unchanged if a new plan reserves the same pages for the same services,
    and every step of it is in place. A second run therefore returns the same text.
  - Pass RV(content) to M(hugeleaf.hugeleaf.apply).
author: The hugeleaf developers (@hugeleaf)
options:
  arguments:
    description:
      - Arguments of C(hugeleaf plan), as C(hugeleaf plan --help) lists them.
      - Without any, the plan covers every service of the host that could use huge pages.
      - The module sets C(--output) and C(--json) itself. It refuses C(--root) and C(--tighten).
    type: list
    elements: str
    default: []
  plan:
    description: The current plan file. It need not exist.
    type: path
    default: /etc/hugeleaf/plan.toml
  allow_cut:
    description: Accept a plan with fewer pages than the services need, instead of failing.
    type: bool
    default: false
  program:
    description: The program, as a path or as a name in C(PATH), C(/usr/local/bin) or C(/usr/bin).
    type: str
    default: hugeleaf
attributes:
  check_mode:
    description: Runs in check mode as otherwise.
    support: full
  diff_mode:
    description: Makes no changes, and returns no differences.
    support: none
  platform:
    description: Needs Linux.
    platforms: Linux
    support: full
seealso:
  - module: hugeleaf.hugeleaf.apply
'''

EXAMPLES = r'''
- name: Plan the pages of one PostgreSQL cluster
  hugeleaf.hugeleaf.plan:
    arguments: [postgresql@15-main.service]
  register: planned

- name: Apply the plan
  hugeleaf.hugeleaf.apply:
    plan: /etc/hugeleaf/plan.toml
    content: "{{ planned.content }}"
'''

RETURN = r'''
content:
  description: The plan file as text.
  returned: success
  type: str
is_new:
  description: True if the text differs from the current plan file, or there is none.
  returned: success
  type: bool
cut:
  description: The services that get fewer pages than they need, with the number of missing pages and the reason.
  returned: success
  type: list
  elements: dict
notes:
  description: Notes of the plan, such as pages that an earlier plan promises to other services.
  returned: success
  type: list
  elements: str
'''

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hugeleaf.hugeleaf.plugins.module_utils.program import (
    Program,
    arguments_of,
    draft_path,
    is_change,
    purpose,
    read_plan,
)

# Arguments that this module sets itself, or that make no plan.
REFUSED = ('--output', '--json', '--root', '--tighten')


def main():
    module = AnsibleModule(
        argument_spec=arguments_of({
            'arguments': {'type': 'list', 'elements': 'str', 'default': []},
            'plan': {'type': 'path', 'default': '/etc/hugeleaf/plan.toml'},
            'allow_cut': {'type': 'bool', 'default': False},
        }),
        supports_check_mode=True,
    )
    arguments = module.params['arguments']
    for argument in arguments:
        if argument.split('=', 1)[0] in REFUSED:
            module.fail_json(msg='arguments: %s cannot be used here. Next: remove it' % argument)
    program = Program(module)
    path = module.params['plan']
    old = read_plan(module, path)
    with draft_path(module) as draft:
        answer = program.ask(['plan', '--output', draft] + arguments, names={draft: path})
        new = read_plan(module, draft)

    cut = [
        {'name': service.get('name'), 'short_pages': service['short_pages'], 'reason': service.get('reason')}
        for service in answer.values.get('services') or []
        if service.get('short_pages')
    ]
    if answer.status == 1 and not module.params['allow_cut']:
        whom = '; '.join('%(name)s lacks %(short_pages)s pages: %(reason)s' % service for service in cut)
        program.fail(answer, 'the plan has fewer pages than its services need: %s. Next: free memory, plan less, or set '
                             'allow_cut' % whom, cut=cut, changed=False)
    for line in answer.values.get('unread') or []:
        module.warn(line)
    in_place = not any(is_change(step) for step in answer.steps)
    keep = old is not None and in_place and purpose(old) == purpose(new)
    content = old if keep else new
    module.exit_json(
        changed=False,
        content=content,
        is_new=content != old,
        cut=cut,
        notes=answer.values.get('notes') or [],
    )


if __name__ == '__main__':
    main()
