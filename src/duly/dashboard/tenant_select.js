// The tenants as a native select, which works with the keyboard and on phones; names are shown as
// text. The empty value stands for all tenants.
export default {
  props: { tenants: Array, tenant: String },
  emits: ["choose"],
  template: `
    <label class="tenants">
      <span>Tenant</span>
      <select class="tool" :value="tenant" @change="$emit('choose', $event.target.value)">
        <option value="">All tenants</option>
        <option v-for="one in tenants" :key="one.name" :value="one.name">{{ one.label }}</option>
      </select>
    </label>`,
};
